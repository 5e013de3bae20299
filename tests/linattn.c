/* The implementation under test. This file alone is compiled once per compiler, language and set of
   flags; the tests are compiled once and linked to each of its objects. */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
