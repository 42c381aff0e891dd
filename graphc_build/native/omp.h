#pragma once

// What ggml calls of OpenMP; see openmp.cpp.

#ifdef __cplusplus
extern "C" {
#endif

int omp_get_num_threads(void);
int omp_get_thread_num(void);

#ifdef __cplusplus
}
#endif
