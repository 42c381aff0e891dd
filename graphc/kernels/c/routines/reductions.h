// How an update and the element that it meets combine.
#define GRAPHC_NONE 0
#define GRAPHC_ADD 1
#define GRAPHC_MUL 2
#define GRAPHC_MAX 3
#define GRAPHC_MIN 4
