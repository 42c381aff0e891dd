#pragma once

#include "graphc/refit.h"

#include <map>
#include <string>
#include <vector>

namespace graphc {

/// A change of a parameter: `scale` times `up` times `down`, as a matrix with the parameter's rows. Both are float32.
struct LoraFactors {
    Values up;    // [rows, rank]
    Values down;  // [rank, columns]
    double scale = 1;
};

/// A LoRA: its changes by the number of the parameter, how strongly they count, and the modules of its file that the model does not have.
struct Lora {
    std::map<size_t, LoraFactors> changes;
    float strength = 1;
    std::vector<std::string> unmatched;
};

/// The changes of a file for a model with these recipes: pairs of factors, as kohya's scripts, diffusers and PEFT name them, with alpha
/// where the file has it. Of a file for several components the one that has the most of the model's names is meant. Throws Error for
/// other kinds, sizes that do not fit, a file of another base, and parameters on whose numbers the program relies.
Lora read_lora(const Checkpoint & file, const Recipes & recipes);

/// A model's weights and what they are made of: as they are without LoRAs, and the parameters of the checkpoint that was loaded last.
struct Base {
    std::vector<Values> weights;
    std::map<size_t, Values> parameters;
};

/// What weights are with some LoRAs on, and what is beside them.
struct Changed {
    std::vector<Values> weights;
    std::vector<Beside> beside;
};

/// The weights with some LoRAs on: those that none changes are those of the base. A weight in blocks of which only products are made
/// stays, with the changes beside it, unless a checkpoint told what it was before. Throws Error where a change cannot be made:
/// something else reads a weight in blocks, or a weight is computed of parameters that are not known.
Changed with_loras(const Base & base, const std::map<std::string, Lora> & loras, const Recipes & recipes,
                   const std::vector<WeightSlot> & slots);

}  // namespace graphc
