/* A stream that is rewound: cc -O2 examples/quickstart.c -o quickstart && ./quickstart */
#define LINATTN_IMPLEMENTATION
#include "../linattn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 8, DIM = 64, ROW = HEADS * DIM, PROMPT = 1000, DRAFT = 4, ALL = PROMPT + 2 * DRAFT };
static float q[ALL * ROW], k[ALL * ROW], v[ALL * ROW], out[ALL * ROW], again[ALL * ROW];

static void attend(void *state, size_t first, size_t n, float *output)
{
    size_t at = first * ROW;
    linattn_status status =
        linattn_causal(state, linattn_rows(q + at), linattn_rows(k + at), linattn_rows(v + at),
                       linattn_output_rows(output + at), n, NULL);
    if (status != LINATTN_OK) {
        printf("linattn: %s\n", linattn_status_string(status));
        exit(1);
    }
}

int main(void)
{
    linattn_config config = {.heads = HEADS, .dim_key = DIM};
    size_t bytes = linattn_state_size(&config), others = PROMPT + DRAFT;
    /* states are fastest where a line of the cache begins, which is not where malloc puts them */
    char *memory = malloc(2 * bytes + 63);
    char *state = memory + (64 - (uintptr_t)memory % 64) % 64, *saved = state + bytes;
    if (!memory || linattn_state_init(&config, state, bytes) != LINATTN_OK) {
        return 1;
    }
    for (size_t i = 0; i < ALL * ROW; i++) { /* in place of a model's queries, keys and values */
        q[i] = (float)rand() / (float)RAND_MAX;
        k[i] = (float)rand() / (float)RAND_MAX;
        v[i] = (float)rand() / (float)RAND_MAX;
    }
    attend(state, 0, PROMPT, out);     /* prefill */
    memcpy(saved, state, bytes);       /* save */
    attend(state, PROMPT, DRAFT, out); /* a draft of four tokens, which is then rejected */
    memcpy(state, saved, bytes);       /* rewind */
    for (size_t token = others; token < ALL; token++) {
        attend(state, token, 1, out); /* decode four others, one by one */
    }
    attend(saved, others, DRAFT, again); /* the saved copy never saw the draft */
    int same = memcmp(state, saved, bytes) == 0 &&
               memcmp(out + others * ROW, again + others * ROW, DRAFT * ROW * sizeof *out) == 0;
    puts(same ? "the same bits" : "the bits differ");
    free(memory);
    return !same || fclose(stdout) != 0;
}
