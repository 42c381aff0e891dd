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
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ ranksep: 34, nodesep: 22, edgesep: 12, ranker: "tight-tree", marginx: MARGIN, marginy: MARGIN });
  const names = new Map(items.map((item, index) => [item, String(index)]));
  for (const [item, name] of names) graph.setNode(name, { item, ...sizeOf(item, open) });
  for (const edge of edges) graph.setEdge(names.get(edge.from), names.get(edge.to), edge);
  dagre.layout(graph);
  const top = group.parent ? HEADER : 0;
  const nodes = graph.nodes().map((name) => graph.node(name));
  const { width, height } = widened(graph, nodes);
  const rows = bands(nodes);
  const places = new Map(nodes.map((node) => [node.item, rectangle(node, rows, top)]));
  return {
    width: Math.max(width, CLOSED.width),
    height: height + top,
    places: [...places.values()],
    edges: graph.edges().map((name) => {
      const { from, to, nodes, points } = graph.edge(name);
      return { from, to, nodes, points: route(points.slice(1, -1), places.get(from), places.get(to), rows, top) };
    }),
  };
}

/** The size, after all is moved so far that edges have a margin too. */
function widened(graph, nodes) {
  const bends = graph.edges().flatMap((name) => graph.edge(name).points);
  const all = bends.map(({ x }) => x);
  const [left, right] = [Math.min(MARGIN, ...all), Math.max(...all, 0)];
  for (const place of [...bends, ...nodes]) place.x += MARGIN - left;
  const { width, height } = graph.graph();
  return { width: Math.max(width, right + MARGIN) + MARGIN - left, height };
}

/** The rows of the layout by the height of their middle: each is as high as its highest item. */
function bands(nodes) {
  const rows = new Map();
  for (const { y, height } of nodes) rows.set(Math.round(y), Math.max(rows.get(Math.round(y)) ?? 0, height));
  return rows;
}

/** Where an item is drawn: at the top of its row. */
function rectangle({ item, x, y, width, height }, rows, top) {
  const row = rows.get(Math.round(y));
  return { item, x: x - width / 2, y: y - row / 2 + top, width, height, below: y + row / 2 + top };
}

/** An edge's points: straight down through rows, so that it passes beside what is high, and aslant between them. */
function route(bends, from, to, rows, top) {
  const middle = bends.flatMap(({ x, y }) => {
    const half = (rows.get(Math.round(y)) ?? 0) / 2;
    return half
      ? [
          { x, y: y - half + top },
          { x, y: y + half + top },
        ]
      : [{ x, y: y + top }];
  });
  const back = from.y > to.y; // an edge of a cycle goes up
  if (back) middle.sort((a, b) => b.y - a.y);
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
