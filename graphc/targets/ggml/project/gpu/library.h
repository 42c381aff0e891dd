// Libraries that are opened while a program runs.
#pragma once

#include <stddef.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
static inline void * gpu_library_open(const char * file) { return (void *) LoadLibraryA(file); }
static inline void * gpu_library_find(void * library, const char * name) { return (void *) GetProcAddress((HMODULE) library, name); }
static inline void gpu_library_close(void * library) { FreeLibrary((HMODULE) library); }
static inline const char * gpu_library_error(void) { return "it cannot be loaded"; }
#else
#include <dlfcn.h>
static inline void * gpu_library_open(const char * file) { return dlopen(file, RTLD_NOW | RTLD_LOCAL); }
static inline void * gpu_library_find(void * library, const char * name) { return dlsym(library, name); }
static inline void gpu_library_close(void * library) { dlclose(library); }
static inline const char * gpu_library_error(void) {
    const char * text = dlerror();
    return text == NULL ? "it cannot be loaded" : text;
}
#endif
