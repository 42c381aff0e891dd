// Noise levels that others have found by search: Align Your Steps, optimal steps. Formulas are in schedules.hpp.
#ifndef GRAPHC_IMAGES_LEVEL_TABLES_HPP
#define GRAPHC_IMAGES_LEVEL_TABLES_HPP

#include <map>
#include <string>
#include <vector>

namespace graphc::images {

using Table = std::vector<double>;
using Tables = std::map<std::string, Table>;

/// Sabour, Fidler, Kreis, Align Your Steps (2024), as the authors print them: A1111 and Forge.
inline const Tables & align_your_steps_table() {
    static const Tables tables = {
        {"sd1",
         {14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029}},
        {"sdxl",
         {14.615, 6.315, 3.771, 2.181, 1.342, 0.862, 0.555, 0.38, 0.234, 0.113, 0.029}},
        {"svd",
         {700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002}},
    };
    return tables;
}

/// The same at the models' own levels: ComfyUI and stable-diffusion.cpp.
inline const Tables & align_your_steps_exact_table() {
    static const Tables tables = {
        {"sd1",
         {14.6146412293, 6.4745760956, 3.8636745985, 2.694615152, 1.8841921177, 1.3943805092, 0.9642583904,
          0.6523686016, 0.3977456272, 0.1515232662, 0.0291671582}},
        {"sdxl",
         {14.6146412293, 6.3184485287, 3.7681790315, 2.1811480769, 1.3405244945, 0.8620721141, 0.5550693289,
          0.3798540708, 0.2332364134, 0.1114188177, 0.0291671582}},
        {"svd",
         {700.0, 54.5, 15.886, 7.977, 4.248, 1.789, 0.981, 0.403, 0.173, 0.034, 0.002}},
    };
    return tables;
}

/// Forge (modules/sd_schedulers.py).
inline const Tables & align_your_steps_gits_table() {
    static const Tables tables = {
        {"sd1",
         {14.615, 4.617, 2.507, 1.236, 0.702, 0.402, 0.24, 0.156, 0.104, 0.094, 0.029}},
        {"sdxl",
         {14.615, 4.734, 2.567, 1.529, 0.987, 0.652, 0.418, 0.268, 0.179, 0.127, 0.029}},
    };
    return tables;
}

/// Forge (modules/sd_schedulers.py).
inline const Tables & align_your_steps_32_table() {
    static const Tables tables = {
        {"sd1",
         {14.615, 11.23951352, 8.64363081, 6.64729424, 5.57250862, 4.71648546, 3.99196065, 3.5195609, 3.13490466,
          2.79228788, 2.48773628, 2.21663865, 1.97508351, 1.7793172, 1.61475335, 1.46540953, 1.314849, 1.16642497,
          1.03475547, 0.91573744, 0.80748169, 0.71202361, 0.621739, 0.53065202, 0.4529096, 0.37491455, 0.27461819,
          0.2011529, 0.14105873, 0.06682881, 0.03166121, 0.015}},
        {"sdxl",
         {14.615, 11.1491618, 8.50522127, 6.48827151, 5.43707402, 4.60398619, 3.89854704, 3.27407457, 2.74396527,
          2.29968659, 1.95448514, 1.67108715, 1.42878152, 1.23181009, 1.06789649, 0.92579443, 0.80290886,
          0.69660121, 0.60436903, 0.52852552, 0.46773344, 0.41393379, 0.36258186, 0.31008517, 0.26518925,
          0.22326461, 0.17653877, 0.13959192, 0.10587381, 0.05519369, 0.02877334, 0.015}},
    };
    return tables;
}

/// Pei, Hu, Gu, Optimal Stepsize for Diffusion Sampling (2025), as ComfyUI's node has them.
inline const Tables & optimal_steps_table() {
    static const Tables tables = {
        {"flux",
         {0.9968, 0.9886, 0.9819, 0.975, 0.966, 0.9471, 0.9158, 0.8287, 0.5512, 0.2808, 0.001}},
        {"wan",
         {1.0, 0.997, 0.995, 0.993, 0.991, 0.989, 0.987, 0.985, 0.98, 0.975, 0.973, 0.968, 0.96, 0.946, 0.927,
          0.902, 0.864, 0.776, 0.539, 0.208, 0.001}},
        {"chroma",
         {0.992, 0.99, 0.988, 0.985, 0.982, 0.978, 0.973, 0.968, 0.961, 0.953, 0.943, 0.931, 0.917, 0.9, 0.881,
          0.858, 0.832, 0.802, 0.769, 0.731, 0.69, 0.646, 0.599, 0.55, 0.501, 0.451, 0.402, 0.355, 0.311, 0.27,
          0.232, 0.199, 0.169, 0.143, 0.12, 0.101, 0.084, 0.07, 0.058, 0.048, 0.001}},
    };
    return tables;
}

}  // namespace graphc::images

#endif
