// Where things are: each open module is laid out by itself, around what it holds.

const STEP = { width: 216, height: 46 };
const CLOSED = { width: 216, height: 52 };
const PIN = { width: 130, height: 20 };
const HEADER = 30;
const MARGIN = 16;

/** The size of an item; an open module is as large as its content. */
function sizeOf(item, open) {
  if (item.pin) return PIN;
  if (!(item instanceof Group)) return STEP;
  if (!open.has(item.id)) return CLOSED;
  const box = (item.box ??= layout(item, open));
  return { width: box.width, height: box.height };
}

/** What is drawn in a module: items with their places, and edges with their points, from its left upper corner. */
function layout(group, open) {
  const { items, edges } = connections(group);
  const sizes = items.map((item) => sizeOf(item, open));
  const numbers = new Map(items.map((item, index) => [item, index]));
  const ends = edges.map(({ from, to, nodes }) => {
    return { from: numbers.get(from), to: numbers.get(to), line: [...nodes].map(({ id }) => id).join() };
  });
  const found = arrange(sizes, ends);
  const sides = [
    ...found.nodes.flatMap(({ x }, index) => [x - sizes[index].width / 2, x + sizes[index].width / 2]),
    ...found.edges.flat().map(({ x }) => x),
  ];
  const left = sides.reduce((a, b) => Math.min(a, b), Infinity) - MARGIN;
  const right = sides.reduce((a, b) => Math.max(a, b), -Infinity) + MARGIN;
  const above = MARGIN + (group.parent ? HEADER : 0);
  const moved = ({ x, top, bottom }) => ({ x: x - left, top: top + above, bottom: bottom + above });
  const places = found.nodes.map(moved).map(({ x, top, bottom }, index) => {
    return { item: items[index], ...sizes[index], x: x - sizes[index].width / 2, y: top, below: bottom };
  });
  return {
    width: Math.max(right - left, CLOSED.width),
    height: places.reduce((most, { below }) => Math.max(most, below), 0) + MARGIN,
    places,
    edges: edges.map((edge, index) => {
      const { from, to } = ends[index];
      return { ...edge, points: route(places[from], found.edges[index].map(moved), places[to]) };
    }),
  };
}

/** An edge's points: straight through the layers that it passes, beside what is high, and aslant between them. */
function route(from, passed, to) {
  const back = from.y > to.y; // an edge of a cycle goes up
  const middle = passed.flatMap(({ x, top, bottom }) => {
    const [high, low] = [{ x, y: top }, { x, y: bottom }];
    return back ? [low, high] : [high, low];
  });
  const start = { x: beside(from, middle[0] ?? to), y: back ? from.y : from.y + from.height };
  const end = { x: beside(to, middle[middle.length - 1] ?? from), y: back ? to.below : to.y };
  return [start, ...(back ? [] : [{ x: start.x, y: from.below }]), ...middle, end];
}

/** Where an edge leaves a rectangle for a point: as near to it as its side allows. */
function beside(place, point) {
  const inset = Math.min(16, place.width / 4);
  const towards = point.width ? point.x + point.width / 2 : point.x;
  return Math.min(Math.max(towards, place.x + inset), place.x + place.width - inset);
}

/** The children of a module with a pin for each value that comes in or goes out, and what flows between them. */
function connections(group) {
  const items = [...group.children];
  const pins = new Map();
  const edges = new Map();
  const pin = (node, out) => {
    const key = `${node.id}${out}`;
    if (!pins.has(key)) pins.set(key, { pin: true, node, out, group });
    return pins.get(key);
  };
  const connect = (from, to, node) => {
    if (from === to) return;
    const key = `${idOf(from)} ${idOf(to)}`;
    if (!edges.has(key)) edges.set(key, { from, to, nodes: new Set() });
    edges.get(key).nodes.add(node);
  };
  for (const node of group.steps) {
    const here = group.holding(node);
    for (const producer of node.producers) connect(group.holding(producer) ?? pin(producer, false), here, producer);
    if (node.readers.some((reader) => !group.holding(reader))) connect(here, pin(node, true), node);
  }
  return { items: [...items, ...pins.values()], edges: [...edges.values()] };
}

const idOf = (item) => (item.pin ? `${item.node.id}${item.out ? ">" : "<"}` : item.id);
