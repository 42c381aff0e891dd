// What errors.c does for the backend: keeps what a call that fails says.
#include "driver.h"

#include <stdarg.h>
#include <stdio.h>

char said[GPU_TEXT];

void gpu_say(const char * format, ...) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(said, sizeof said, format, rest);
    va_end(rest);
}
