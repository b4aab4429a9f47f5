// Every kernel's name, for those who want to look at them all.
#include "../host/kernels.h"

extern "C" {
const char *cbq_cuda_kernel_dequant(int i, const void **function);
const char *cbq_cuda_kernel_matmul(int i, const void **function);
const char *cbq_cuda_kernel_moe_sum(int i, const void **function);
const char *cbq_cuda_kernel_repack(int i, const void **function);
const char *cbq_cuda_kernel_wgmma(int i, const void **function);
}

typedef const char *(*list_function)(int i, const void **function);
static const list_function lists[] = {
    cbq_cuda_kernel_dequant, cbq_cuda_kernel_matmul, cbq_cuda_kernel_moe_sum, cbq_cuda_kernel_repack, cbq_cuda_kernel_wgmma,
};

extern "C" const char *cbq_cuda_kernel(int i, const void **function) {
    for (list_function list : lists)
        for (int j = 0;; j++, i--) {
            const char *name = list(j, function);
            if (!name) break;
            if (i == 0) return name;
        }
    return NULL;
}
