// A lock, for threads of one process.
#pragma once

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef SRWLOCK gpu_lock;
static inline void gpu_lock_new(gpu_lock * lock) { InitializeSRWLock(lock); }
static inline void gpu_take(gpu_lock * lock) { AcquireSRWLockExclusive(lock); }
static inline void gpu_give(gpu_lock * lock) { ReleaseSRWLockExclusive(lock); }
#else
#include <pthread.h>
typedef pthread_mutex_t gpu_lock;
static inline void gpu_lock_new(gpu_lock * lock) { pthread_mutex_init(lock, NULL); }
static inline void gpu_take(gpu_lock * lock) { pthread_mutex_lock(lock); }
static inline void gpu_give(gpu_lock * lock) { pthread_mutex_unlock(lock); }
#endif
