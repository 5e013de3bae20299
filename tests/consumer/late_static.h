/* What a file must not do between two inclusions of linattn.h. */
#define LINATTN_STATIC
