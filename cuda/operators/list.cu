// Every operator, for the module.
#include "../host/operators.h"

#include <stddef.h>

extern "C" {
extern const cbq_cuda_operator cbq_cuda_elementwise[], cbq_cuda_rope[], cbq_cuda_tokens[];
extern const cbq_cuda_operator cbq_cuda_choice[], cbq_cuda_indexer[], cbq_cuda_attention[];
}
static const cbq_cuda_operator *const lists[] = {cbq_cuda_elementwise, cbq_cuda_rope, cbq_cuda_tokens,
                                                 cbq_cuda_choice, cbq_cuda_indexer, cbq_cuda_attention};

extern "C" const cbq_cuda_operator *cbq_cuda_operator_at(int i) {
    for (const cbq_cuda_operator *list : lists)
        for (; list->name; list++, i--)
            if (i == 0) return list;
    return NULL;
}
