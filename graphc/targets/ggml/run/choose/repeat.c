#include "repeat.h"

#include <string.h>

static char * lies_in(const struct graphc_lying * lying, size_t step) {
    return (step % 2 == 0 ? lying->even : lying->odd) + lying->further * step;
}

/// Has the tensors that lie in arrays lie where they do in a step.
static void lie_in(const struct graphc_steps * s, size_t step) {
    for (size_t i = 0; i < s->lent_count; ++i) s->lent[i].tensor->data = lies_in(&s->lent[i], step);
    for (size_t i = 0; i < s->view_count; ++i) s->views[i]->data = (char *) s->views[i]->view_src->data + s->views[i]->view_offs;
}

static void copy_step(const struct graphc_steps * s, size_t step) {
    for (size_t i = 0; i < s->copied_count; ++i) {
        const struct graphc_lying * copied = &s->copied[i];
        if (copied->nbytes != 0) memcpy(lies_in(copied, step), copied->tensor->data, copied->nbytes);
    }
}

static bool step_has_fault(const struct graphc_steps * s) {
    for (size_t i = 0; i < s->fault_count; ++i) {
        if (*s->faults[i] != 0) return true;
    }
    return false;
}

int graphc_runner_repeat(struct graphc_runner * runner, struct graphc_steps * s, int threads, ggml_abort_callback stops, void * data) {
    int status = GGML_STATUS_SUCCESS;
    bool going = true;
    for (s->made = 0; s->made < s->most && going && status == GGML_STATUS_SUCCESS; ++s->made, ++*s->number) {
        lie_in(s, s->made);
        status = graphc_runner_run(runner, threads, stops, data);
        copy_step(s, s->made);
        going = *s->going != 0 && !step_has_fault(s);
    }
    lie_in(s, 0);
    return status;
}
