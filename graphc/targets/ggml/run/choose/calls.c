#include "calls.h"

#include "kinds.h"

int graphc_make_calls(union graphc_argument * list, const struct graphc_call * calls, int count, const int * places, const int * decided,
                      int * told) {
    for (int i = 0; i < count; i++) {
        const struct graphc_call * call = &calls[i];
        void * made = KINDS[call->kind](call->function, list, places + call->first, call->count);
        if (!made) {
            return i;
        }
        list[call->result].address = made;
        told[i] = *decided;
    }
    return count;
}
