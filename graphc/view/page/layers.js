// Places for the nodes of a graph, from top to bottom, in the steps of Sugiyama, Tagawa and Toda (1981): a layer for each
// node, a point wherever an edge passes through a layer, an order of each layer with few crossings, and places (places.js).

const GAP = { node: 22, line: 12, layer: 34 };
const SWEEPS = 24; // down and up in turn

/**
 * Lay out nodes `{ width, height }` and edges `{ from, to, line }`, which number nodes. Edges of a line start at the same node
 * and share their way. The result has `nodes`, each with its middle `x` and the `top` and `bottom` of its layer; and for
 * each edge such places too, where it passes through layers on its way. An edge goes down unless it closes a cycle.
 */
function arrange(nodes, edges) {
  const layer = layersOf(nodes.length, edges);
  const points = nodes.map((size, index) => newPoint(layer[index], size, false));
  const ways = waysOf(points, edges);
  const layers = untangle(points);
  setPlaces(layers);
  let top = 0;
  for (const row of layers) {
    const bottom = top + row.reduce((most, { height }) => Math.max(most, height), 0);
    for (const point of row) Object.assign(point, { top, bottom });
    top = bottom + GAP.layer;
  }
  return { nodes: points.slice(0, nodes.length), edges: ways };
}

/** A node, or where an edge is passing. */
function newPoint(layer, { width, height }, passing) {
  return { layer, width, height, passing, gap: passing ? GAP.line : GAP.node, above: [], below: [] };
}

/** The nodes by number, each before those that it leads to, but for what closes a cycle. */
function sorted(next) {
  const seen = new Set();
  const done = [];
  for (const start of next.keys()) {
    const path = seen.has(start) ? [] : [{ node: start, tried: 0 }];
    seen.add(start);
    while (path.length) {
      const last = path[path.length - 1];
      const node = next[last.node][last.tried++];
      if (node === undefined) done.push(path.pop().node);
      else if (!seen.has(node)) path.push({ node, tried: 0 });
      seen.add(node);
    }
  }
  return done.reverse();
}

/** The layer of each node: the first that its edges allow, or further down if edges get no longer in all by that. */
function layersOf(count, edges) {
  const lists = () => Array.from({ length: count }, () => []);
  const [next, above, below] = [lists(), lists(), lists()];
  for (const { from, to } of edges) next[from].push(to);
  const order = sorted(next);
  const position = [];
  order.forEach((node, index) => (position[node] = index));
  for (const { from, to } of edges) {
    const [high, low] = position[from] < position[to] ? [from, to] : [to, from];
    above[low].push(high);
    below[high].push(low);
  }
  const layer = [];
  const longer = []; // how many edges get longer where a node goes down, with all that can follow it
  for (const node of order) {
    layer[node] = above[node].reduce((most, other) => Math.max(most, layer[other] + 1), 0);
    const follows = (other) => (below[other].length === 1 ? Math.min(1, longer[other]) : 1);
    longer[node] = above[node].reduce((all, other) => all + follows(other), 0);
  }
  for (const node of order.reverse()) {
    if (longer[node] > below[node].length || !below[node].length) continue;
    layer[node] = below[node].reduce((least, other) => Math.min(least, layer[other] - 1), Infinity);
  }
  return layer;
}

/** The way of each edge: a point in every layer between its nodes. These are added, and all joined to their neighbours. */
function waysOf(points, edges) {
  const lines = new Map();
  const join = (one, other) => {
    const [high, low] = one.layer < other.layer ? [one, other] : [other, one];
    high.below.push(low);
    low.above.push(high);
  };
  return edges.map(({ from, to, line }) => {
    const [start, end] = [points[from], points[to]];
    const step = Math.sign(end.layer - start.layer);
    const shared = lines.get(line) ?? new Map();
    lines.set(line, shared);
    const way = [];
    let last = start;
    for (let layer = start.layer + step; layer !== end.layer; layer += step) {
      if (!shared.has(layer)) {
        const point = newPoint(layer, { width: 0, height: 0 }, true);
        shared.set(layer, point);
        points.push(point);
        join(last, point);
      }
      way.push((last = shared.get(layer)));
    }
    join(last, end);
    return way;
  });
}

/** The layers, each in an order such that few edges cross: points go to the mean of their neighbours above or below. */
function untangle(points) {
  points.forEach((point, index) => (point.index = index));
  const number = (row) => row.forEach((point, order) => (point.order = order));
  let layers = [];
  for (const index of sorted(points.map(({ below }) => below.map((point) => point.index))))
    (layers[points[index].layer] ??= []).push(points[index]);
  layers.forEach(number);
  let best = { count: crossings(layers), layers };
  for (let sweep = 0; sweep < SWEEPS && best.count; sweep++) {
    layers = layers.map((row) => [...row]);
    const [side, rows] = sweep % 2 ? ["below", [...layers].reverse()] : ["above", layers];
    const turned = sweep % 4 < 2 ? 1 : -1; // whether equals change places
    for (const row of rows) {
      for (const point of row) {
        const orders = point[side].map(({ order }) => order);
        point.mean = orders.length ? orders.reduce((a, b) => a + b) / orders.length : point.order;
      }
      row.sort((a, b) => a.mean - b.mean || turned * (a.order - b.order));
      number(row);
    }
    const count = crossings(layers);
    if (count < best.count) best = { count, layers };
  }
  best.layers.forEach(number);
  return best.layers;
}

/** How many edges cross: for each, those before it that end behind it, counted by a tree of sums (Fenwick). */
function crossings(layers) {
  let count = 0;
  for (const [index, row] of layers.slice(0, -1).entries()) {
    const sums = new Array(layers[index + 1].length + 1).fill(0);
    let before = 0;
    for (const point of row) {
      const ends = point.below.map(({ order }) => order + 1);
      for (const end of ends) {
        count += before;
        for (let at = end; at; at -= at & -at) count -= sums[at];
      }
      for (const end of ends) for (let at = end; at < sums.length; at += at & -at) sums[at] += 1;
      before += ends.length;
    }
  }
  return count;
}
