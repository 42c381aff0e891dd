#pragma once

#include "graphc/assign.h"
#include "graphc/build.h"
#include "graphc/device.h"

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graphc {

class Weights;

/// What the calls of one graph are made with; ggml's functions take it for their context. It lives as long as the graph.
class Builder {
  public:
    /// The tensors are in `context`, and `backends` compute them. Factors beside weights are added to what is multiplied with those.
    Builder(ggml_context * context, const Backends & backends, const Weights & weights);

    operator ggml_context *() const { return context_; }
    operator graphc_builder *() const { return builder_.get(); }

  private:
    ggml_context * context_;
    std::unique_ptr<graphc_builder, void (*)(graphc_builder *)> builder_;
};

/// What of a graph the scheduler would give the wrong one of the two, with the right one (`assign.h`). Throws Error without memory.
std::vector<std::pair<ggml_tensor *, ggml_backend_t>> pinned(ggml_backend_t device, ggml_backend_t cpu, ggml_cgraph * graph);

using Tensor = ggml_tensor *;
using Tensors = std::initializer_list<Tensor>;

// Composite calls: what they compute is said beside their expansions, in graphc's `program/composites/`. A device computes each in the
// way that is best there (`build.c`). Tensors that may be missing are null. They throw Error without memory.

/// softmax(q k^T scale + mask) v, with the heads of a query beside one another: [N, M, H, E].
Tensor attention(const Builder & ctx, Tensor q, Tensor k, Tensor v, Tensor mask, float scale);

/// x weight^T, plus all of `sums`.
Tensor linear(const Builder & ctx, Tensor weight, Tensor x, Tensors sums = {}, bool relu = false);

/// A convolution with strides, pads and dilations of x and y, plus a bias of each channel, plus all of `sums`; directly where a
/// matrix of its columns may be too large.
Tensor conv_2d(const Builder & ctx, Tensor kernel, Tensor image, Tensor bias, int s0, int s1, int p0, int p1, int d0, int d1,
               Tensors sums = {}, bool relu = false);
Tensor conv_2d_direct(const Builder & ctx, Tensor kernel, Tensor image, Tensor bias, int s0, int s1, int p0, int p1, int d0, int d1,
                      Tensors sums = {}, bool relu = false);

/// Normalizations: of rows, and of groups of channels, times a scale, plus a shift, which may be vectors.
Tensor layer_norm(const Builder & ctx, Tensor x, Tensor scale, Tensor shift, float epsilon);
Tensor rms_norm(const Builder & ctx, Tensor x, Tensor scale, Tensor shift, float epsilon);
Tensor group_norm(const Builder & ctx, Tensor x, Tensor scale, Tensor shift, int groups, float epsilon, bool silu = false);

/// Activations, times another tensor; the last is x sigmoid(linear x + cubic x^3).
Tensor relu(const Builder & ctx, Tensor x);
Tensor gelu(const Builder & ctx, Tensor x, Tensor other = nullptr);
Tensor silu(const Builder & ctx, Tensor x, Tensor other = nullptr);
Tensor gate(const Builder & ctx, Tensor x, Tensor other, float linear, float cubic);

/// x rotated by cosines and sines, and what stays as it is behind each row. Pairs are neighbours, or the elements of two halves.
Tensor rotary(const Builder & ctx, Tensor x, Tensor cos, Tensor sin, Tensor rest = nullptr, bool interleaved = false);

/// Copies: contiguous, joined along an axis, with zeros before and behind along each axis.
Tensor copy(const Builder & ctx, Tensor x);
Tensor concat(const Builder & ctx, int axis, Tensors parts);
Tensor pad(const Builder & ctx, Tensor x, int before0, int behind0, int before1, int behind1, int before2, int behind2, int before3,
           int behind3);

}  // namespace graphc
