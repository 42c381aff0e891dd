#pragma once

#include "ggml.h"

namespace graphc {

/// Orders a graph for several servers. ggml sends a server all nodes of its stretch of a graph, also views, which compute nothing,
/// and a server refuses a view of what another one holds. So views come right behind what they are views of, and those of weights
/// are no nodes.
void order_views(ggml_cgraph * graph);

}  // namespace graphc
