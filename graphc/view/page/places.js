// How far to the right the points of a graph in layers are (layers.js), such that what belongs together is straight.

const WEIGHTS = { main: 1, line: 0.01, end: 0.0001 }; // of being straight; see `weightOf`

/** Set the points' `x`: by what is above or below them, then so that lines are straight. */
function setPlaces(layers) {
  for (const row of layers) settle(row, () => ({ x: 0, weight: 1 }));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const [side, rows] = sweep % 2 ? ["above", layers] : ["below", [...layers].reverse()];
    for (const row of rows) settle(row, (point) => wish(point, side));
  }
  straighten(layers);
}

/** Where a point wants to be, the weighted median of its neighbours on a side, and how much. */
function wish(point, side) {
  if (!point[side].length) return { x: point.x, weight: WEIGHTS.end };
  const pulls = point[side].map((other) => ({ x: other.x, weight: weightOf(point, other) }));
  const weight = pulls.reduce((all, pull) => all + pull.weight, 0);
  const middle = (ordered) => {
    let rest = weight / 2;
    return ordered.find((pull) => (rest -= pull.weight) <= 0).x;
  };
  pulls.sort((a, b) => a.x - b.x);
  return { x: (middle(pulls) + middle(pulls.reverse())) / 2, weight };
}

/** How much it matters that neighbours are one above the other: most for nodes inside of the graph, then along a line. */
function weightOf(one, other) {
  const inside = ({ above, below, passing }) => !passing && above.length && below.length;
  if (one.passing && other.passing) return WEIGHTS.line;
  return inside(one) && inside(other) ? WEIGHTS.main : WEIGHTS.end;
}

/** Place a layer as near to its points' wishes as order and gaps allow (least squares): those that collide share a mean. */
function settle(row, wishOf) {
  const blocks = [];
  const offsets = [0];
  for (const [index, point] of row.entries()) {
    if (index) offsets[index] = offsets[index - 1] + apart(row[index - 1], point);
    const { x, weight } = wishOf(point);
    let block = { start: index, mean: x - offsets[index], weight };
    while (blocks.length && blocks[blocks.length - 1].mean > block.mean) {
      const last = blocks.pop();
      const all = last.weight + block.weight;
      block = { start: last.start, mean: (last.mean * last.weight + block.mean * block.weight) / all, weight: all };
    }
    blocks.push(block);
  }
  blocks.forEach(({ start, mean }, index) => {
    const end = blocks[index + 1]?.start ?? row.length;
    for (let at = start; at < end; at++) row[at].x = mean + offsets[at];
  });
}

/** How far apart the middles of neighbours are at least. */
function apart(left, right) {
  return (left.width + right.width + left.gap + right.gap) / 2;
}

/** Give the points of each line one `x` for as many layers as there is room for it. */
function straighten(layers) {
  for (const first of layers.flat()) {
    if (!first.passing || first.above.some(({ passing }) => passing)) continue;
    const runs = [];
    for (let point = first; point; point = point.below.find(({ passing }) => passing)) {
      const row = layers[point.layer];
      const [left, right] = [row[point.order - 1], row[point.order + 1]];
      const room = [left ? left.x + apart(left, point) : -Infinity, right ? right.x - apart(point, right) : Infinity];
      const run = runs[runs.length - 1] ?? { least: Infinity, most: -Infinity };
      const [least, most] = [Math.max(run.least, room[0]), Math.min(run.most, room[1])];
      if (least <= most) Object.assign(run, { least, most }).points.push(point);
      else runs.push({ points: [point], least: room[0], most: room[1] });
    }
    for (const { points, least, most } of runs) {
      const middle = points.map(({ x }) => x).sort((a, b) => a - b)[points.length >> 1];
      for (const point of points) point.x = Math.min(Math.max(middle, least), most);
    }
  }
}
