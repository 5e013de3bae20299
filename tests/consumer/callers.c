/* For each public function one that calls it, in one file with the implementation: compilers must
   not take these for code that is seldom run, whatever they do with what is called. */
#define LINATTN_IMPLEMENTATION
#include "linattn.h"

extern const linattn_config *config;
extern const linattn_context *context;
extern void *state, *other, **states, *workspace;
extern const void *const *read_states;
extern linattn_view q, k, v;
extern linattn_output out;
extern linattn_gates gates;
extern float *x, *y, *z;
extern size_t n, m, bytes;
extern volatile size_t result;

#define CALLER(function, ...)                                                                      \
    void calls_##function(void);                                                                   \
    void calls_##function(void) { result = (size_t)(linattn_##function)(__VA_ARGS__); }

CALLER(status_string, LINATTN_OK)
CALLER(isa_compiled)
CALLER(isa_available)
CALLER(isa_select, LINATTN_ISA_AUTO)
CALLER(isa_active)
CALLER(isa_name, LINATTN_ISA_SCALAR)
CALLER(config_check, config)
CALLER(config_error, config)
CALLER(features, config)
CALLER(state_size, config)
CALLER(state_init, config, state, bytes)
CALLER(state_reset, state)
CALLER(state_check, config, state, bytes)
CALLER(state_tokens, state)
CALLER(state_export, state, m, 0, x, z)
CALLER(state_import, state, m, 0, x, z)
CALLER(update, state, k, v, n, context)
CALLER(query, state, q, out, n, context)
CALLER(causal, state, q, k, v, out, n, context)
CALLER(update_many, states, m, k, v, n, context)
CALLER(query_many, read_states, m, q, out, n, context)
CALLER(causal_many, states, m, q, k, v, out, n, context)
CALLER(recurrent, state, q, k, v, &gates, out, n, context)
CALLER(recurrent_many, states, m, q, k, v, &gates, out, n, context)
CALLER(merge, state, other)
CALLER(bidirectional, config, q, n, k, v, n, out, workspace, bytes, context)
CALLER(softmax, config, q, n, k, v, n, out, 1, workspace, bytes, context)
CALLER(nystrom, config, q, n, k, v, n, out, 0, workspace, bytes, context)
CALLER(workspace_size, config, LINATTN_WORKSPACE_SOFTMAX, context)
CALLER(map, config, 1, x, y, n)
CALLER(exp, x, y, n)
CALLER(elu1, x, y, n)
CALLER(relu, x, y, n)
CALLER(random_features, (uint64_t)n, LINATTN_RANDOM_ORTHOGONAL, m, n, x)
