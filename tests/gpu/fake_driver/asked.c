// What tests ask, and tell.
#include "state.h"

/// Have the call of this name that comes as the n-th from now fail with a code; 0: none.
void fake_cuda_fail(const char * name, long n, int code) {
    pthread_mutex_lock(&lock);
    const int i = number_of(name);
    names[i].fails_at = n == 0 ? 0 : names[i].count + n, names[i].code = code;
    pthread_mutex_unlock(&lock);
}

/// Have something done, once, before the next call of this name, as if other threads came between.
void fake_cuda_meanwhile(const char * name, void (*function)(void)) {
    pthread_mutex_lock(&lock);
    names[number_of(name)].meanwhile = function;
    pthread_mutex_unlock(&lock);
}

/// What `fake_cuda_fail` does, for other processes: FAKE_CUDA_FAIL=cuMemAlloc:1:2.
__attribute__((constructor)) static void fail_by_environment(void) {
    char name[64];
    long n = 0;
    int code = 0;
    const char * text = getenv("FAKE_CUDA_FAIL");
    if (text != NULL && sscanf(text, "%63[^:]:%ld:%d", name, &n, &code) == 3) fake_cuda_fail(name, n, code);
}

const char * fake_cuda_name(int index) { return index < MOST_NAMES && names[index].name[0] != 0 ? names[index].name : NULL; }

long fake_cuda_count(const char * name) { return names[number_of(name)].count; }

/// How many things are left of those that were made, users of contexts among them.
int fake_cuda_left(char * text, size_t size) {
    pthread_mutex_lock(&lock);
    int left = 0, used = 0;
    text[0] = 0;
    for (const struct object * each = objects; each != NULL; each = each->next, left++) {
        if ((size_t) used < size) used += snprintf(text + used, size - (size_t) used, "%s ", kinds[each->kind]);
    }
    for (int i = 0; i < MOST_DEVICES; i++) left += devices[i].users;
    pthread_mutex_unlock(&lock);
    return left;
}

/// How often something was done that must not be, and the first of it; from then on there is none again.
int fake_cuda_misuses(char * text, size_t size) {
    pthread_mutex_lock(&lock);
    const int found = misuses;
    snprintf(text, size, "%s", found > 0 ? misuse_text : "");
    misuses = 0;
    pthread_mutex_unlock(&lock);
    return found;
}

void fake_cuda_seed(uint32_t value) { seed = value; }

/// How long launches take from now on, in seconds, by their blocks, threads and bytes of shared memory; NULL: a millisecond each.
void fake_cuda_pace(double (*seconds)(uint32_t blocks, uint32_t threads, uint32_t shared)) { pace = seconds; }

int fake_cuda_depth(void) { return depth; }

const char * fake_cuda_fault(void) { return fault; }
