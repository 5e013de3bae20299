/* linattn as a shared library: what linattn.h declares is exported, and nothing else. */
#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility push(default) /* meson.build hides everything else */
#endif
#define LINATTN_IMPLEMENTATION
#include "../linattn.h"
#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility pop
#endif
