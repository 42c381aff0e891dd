// What the type parameters are while a file of this folder is read on its own. A kernel's file has the types of its tensors in
// their place, and `_T` at the end of a name becomes the names of these types.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float T;        // an element in memory
typedef float V;        // in an expression
typedef double W;       // a total: wider for floats
typedef int64_t I;      // an index in memory
#define LOAD(x) (x)     // from T to V
#define STORE(x) (x)    // from V to T
