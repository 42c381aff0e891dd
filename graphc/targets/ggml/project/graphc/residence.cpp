#include "graphc/residence.h"

#include <algorithm>

namespace graphc {

namespace {

/// Bytes that hold what any call reads of the streamed weights.
size_t slot_size(const Indices & streamed, const Reads & reads, const std::vector<size_t> & sizes) {
    size_t largest = 0;
    for (size_t index : streamed) largest = std::max(largest, sizes[index]);
    for (const std::vector<size_t> & call : reads.together) {
        size_t sum = 0;
        for (size_t index : call) sum += streamed.count(index) != 0 ? sizes[index] : 0;
        largest = std::max(largest, sum);
    }
    return largest;
}

/// Those of a device's `own` weights that are streamed. Throws TooSmall.
Indices too_many(size_t device, std::vector<size_t> own, const Reads & reads, const std::vector<size_t> & sizes, double space) {
    if (own.empty() || static_cast<double>(total(own, sizes)) <= space) return {};
    Indices rest(own.begin(), own.end());
    const size_t least = slot_count * slot_size(rest, reads, sizes);
    if (static_cast<double>(least) > space) throw TooSmall{device, least};
    double left = space - static_cast<double>(least);
    std::stable_sort(own.begin(), own.end(), [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
    for (size_t index : own) {
        left -= static_cast<double>(sizes[index]);
        if (left < 0) break;
        rest.erase(index);
    }
    return rest;
}

}  // namespace

std::vector<size_t> Residence::resident(size_t number) const {
    std::vector<size_t> found;
    for (size_t index = 0; index < device.size(); ++index) {
        if (device[index] == static_cast<int>(number) && streamed.count(index) == 0) found.push_back(index);
    }
    return found;
}

std::vector<int> devices_of_weights(const std::vector<size_t> & order, const std::vector<size_t> & sizes,
                                    const std::vector<double> & room, const Indices & host, bool spill) {
    std::vector<int> device(sizes.size(), on_host);
    std::vector<size_t> moved;
    for (size_t index : order) {
        if (host.count(index) == 0) moved.push_back(index);
    }
    std::vector<double> left;
    double space = 0;
    for (double each : room) {
        left.push_back(std::max(each, 0.0));
        space += left.back();
    }
    if (space == 0) {
        std::fill(left.begin(), left.end(), spill ? 0.0 : 1.0);
        space = static_cast<double>(left.size());
    }
    const double all = static_cast<double>(total(moved, sizes));
    const double scale = all < space || !spill ? all / space : 1.0;
    std::vector<double> ends;
    for (double each : left) ends.push_back((ends.empty() ? 0.0 : ends.back()) + each * scale);
    double passed = 0;
    for (size_t index : moved) {
        const double size = static_cast<double>(sizes[index]);
        const auto end = std::lower_bound(ends.begin(), ends.end(), passed + size / 2);
        const size_t place = std::min(static_cast<size_t>(end - ends.begin()), ends.size() - 1);
        passed += size;
        if (spill && size > left[place]) continue;
        left[place] -= size;
        device[index] = static_cast<int>(place);
    }
    return device;
}

Residence residence_for(const std::vector<int> & device, const Reads & reads, const std::vector<size_t> & sizes,
                        const std::vector<double> & room) {
    Residence found{device, {}, {}};
    for (size_t number = 0; number < room.size(); ++number) {
        const auto owned = [&] {
            std::vector<size_t> own;
            for (size_t index : reads.order) {
                if (found.device[index] == static_cast<int>(number)) own.push_back(index);
            }
            return own;
        };
        std::vector<size_t> own = owned();
        if (static_cast<double>(total(own, sizes)) > room[number]) {
            for (size_t index : own) {
                if (reads.by_rows.count(index) != 0) found.device[index] = on_host;
            }
            own = owned();
        }
        const Indices rest = too_many(number, own, reads, sizes, room[number]);
        found.streamed.insert(rest.begin(), rest.end());
        found.slots.push_back(slot_size(rest, reads, sizes));
    }
    return found;
}

}  // namespace graphc
