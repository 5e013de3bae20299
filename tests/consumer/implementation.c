/* The file of the consumer that holds the implementation. Another header may have included
   linattn.h before it, and another may include it after. */
#include "linattn.h"
#define LINATTN_IMPLEMENTATION
#include "linattn.h"
#include "linattn.h"

#ifdef __cplusplus
extern "C" {
#endif
size_t consumer_state(const linattn_config *config, void *state, size_t bytes);
#ifdef __cplusplus
}
#endif

/* The size of the state that was made, 0 if none was. */
size_t consumer_state(const linattn_config *config, void *state, size_t bytes)
{
    return linattn_state_init(config, state, bytes) == LINATTN_OK ? linattn_state_size(config) : 0;
}
