#pragma once

// What systems call threads, locks and signals.

#include <stdbool.h>
#include <stddef.h>

#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK graphc_lock;
typedef CONDITION_VARIABLE graphc_signal;

#define GRAPHC_LOCK SRWLOCK_INIT
#define GRAPHC_SIGNAL CONDITION_VARIABLE_INIT

static inline void lock(graphc_lock * l) { AcquireSRWLockExclusive(l); }
static inline void unlock(graphc_lock * l) { ReleaseSRWLockExclusive(l); }
static inline void wait_for(graphc_signal * s, graphc_lock * l) { SleepConditionVariableSRW(s, l, INFINITE, 0); }
static inline void wake_one(graphc_signal * s) { WakeConditionVariable(s); }
static inline void wake_all(graphc_signal * s) { WakeAllConditionVariable(s); }
static inline void let_others_run(void) { SwitchToThread(); }

typedef DWORD thread_result;
#define GRAPHC_THREAD WINAPI

/// Starts a thread that ends with the process; false if the system has none.
static inline bool start_thread(thread_result(GRAPHC_THREAD * function)(void *), size_t stack) {
    HANDLE thread = CreateThread(NULL, stack, function, NULL, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (thread != NULL) CloseHandle(thread);
    return thread != NULL;
}

static inline void call_in_child(void (*function)(void)) { (void) function; }  // no process is forked

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>

typedef pthread_mutex_t graphc_lock;
typedef pthread_cond_t graphc_signal;

#define GRAPHC_LOCK PTHREAD_MUTEX_INITIALIZER
#define GRAPHC_SIGNAL PTHREAD_COND_INITIALIZER

static inline void lock(graphc_lock * l) { pthread_mutex_lock(l); }
static inline void unlock(graphc_lock * l) { pthread_mutex_unlock(l); }
static inline void wait_for(graphc_signal * s, graphc_lock * l) { pthread_cond_wait(s, l); }
static inline void wake_one(graphc_signal * s) { pthread_cond_signal(s); }
static inline void wake_all(graphc_signal * s) { pthread_cond_broadcast(s); }
static inline void let_others_run(void) { sched_yield(); }

typedef void * thread_result;
#define GRAPHC_THREAD

/// Starts a thread that ends with the process, and gets no signals, which are the program's; false if the system has none.
static inline bool start_thread(thread_result (*function)(void *), size_t stack) {
    pthread_attr_t how;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&how) != 0) return false;
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, stack);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, &how, function, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&how);
    return started;
}

/// Has a function called in every process that is forked from now on.
static inline void call_in_child(void (*function)(void)) { pthread_atfork(NULL, NULL, function); }

#endif

/// A moment in which nothing is done.
static inline void pause_thread(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}
