// What ggml's Vulkan backend calls of Vulkan's loader by name; everything else it asks the loader for. The loader is opened when it
// is first called, so that the library can be linked for any system, and loaded where there is no Vulkan. ggml then hears from the
// first function that it calls that there is no driver, and has no devices.

#include <stddef.h>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

typedef void (*Function)(void);

static Function found(const char * name) {
#ifdef _WIN32
    static HMODULE loader;
    if (!loader) loader = LoadLibraryExA("vulkan-1.dll", NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    return loader ? (Function)GetProcAddress(loader, name) : NULL;
#else
    static void * loader;
    if (!loader) loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    return loader ? (Function)dlsym(loader, name) : NULL;
#endif
}

/// In place of vkEnumerateInstanceVersion: VK_ERROR_INCOMPATIBLE_DRIVER.
static int no_driver(void) { return -9; }

Function vkGetInstanceProcAddr(void * instance, const char * name) {
    Function (*get)(void *, const char *) = (Function(*)(void *, const char *))found("vkGetInstanceProcAddr");
    return get ? get(instance, name) : (Function)no_driver;
}

void vkCmdCopyBuffer(void * commands, void * from, void * to, unsigned count, const void * regions) {
    ((void (*)(void *, void *, void *, unsigned, const void *))found("vkCmdCopyBuffer"))(commands, from, to, count, regions);
}

void vkGetPhysicalDeviceFeatures2(void * device, void * features) {
    ((void (*)(void *, void *))found("vkGetPhysicalDeviceFeatures2"))(device, features);
}
