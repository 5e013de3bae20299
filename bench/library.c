/* The implementation, compiled once for each LIBRARY; only one of them has no LINATTN_STATIC. */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"

#include "library.h"

const library LIBRARY = {
#define LIBRARY_MEMBER(verb) .verb = linattn_##verb,
    LIBRARY_VERBS(LIBRARY_MEMBER)
#undef LIBRARY_MEMBER
        .suffix = LIBRARY_SUFFIX,
};
