// The model's steps as nodes, and the tree of the modules that they are in.

const model = JSON.parse(document.getElementById("model").textContent);

const MANY = 60; // children of a module that are laid out side by side; of more, parts are made
const PART = 30;
const LOOSE = 12; // steps of a small module that is called several times: each call is shown by itself

/** A step, an input or an output. */
class Node {
  constructor(kind, data, reference) {
    Object.assign(this, { kind, data, reference, parent: null, readers: [], producers: [], weights: [] });
    this.id = reference.join("-");
    this.path = data.path.join(".");
  }
}

/** A module, with what is in it, in the order of the run. */
class Group {
  constructor(name, parent) {
    Object.assign(this, { name, parent, children: [], box: null, id: parent ? `${parent.id}/${name}` : "" });
  }

  get path() {
    return this.parent?.path ? `${this.parent.path}.${this.name}` : this.name;
  }

  get steps() {
    return (this.cached ??= this.children.flatMap((child) => (child instanceof Group ? child.steps : [child])));
  }

  /** The child that holds a node; null if none does. */
  holding(node) {
    for (let item = node; item; item = item.parent) if (item.parent === this) return item;
    return null;
  }
}

/** What a reference reads, beyond the views that are not shown: a node, or a weight. */
function origin([kind, index], nodes) {
  const node = nodes.get(`${kind}-${index}`);
  if (node || kind === "weights") return { node, weight: kind === "weights" ? index : null };
  const reads = model.steps[index].reads;
  return reads.length ? origin(reads[0], nodes) : { node: null, weight: null };
}

/** The tree, and its nodes by their ids. */
function buildTree(withViews) {
  const nodes = new Map();
  const add = (kind, data, index) => {
    const node = new Node(data.kind ?? kind, data, [kind, index]);
    nodes.set(node.id, node);
  };
  model.inputs.forEach((data, index) => add("inputs", data, index));
  model.steps.forEach((data, index) => (withViews || data.kind !== "view") && add("steps", data, index));
  model.outputs.forEach((data, index) => add("outputs", data, index));
  const root = new Group("", null);
  for (const node of nodes.values()) {
    for (const read of node.data.reads ?? []) {
      const { node: producer, weight } = origin(read, nodes);
      if (producer && !node.producers.includes(producer)) {
        node.producers.push(producer);
        producer.readers.push(node);
      } else if (weight !== null) node.weights.push(model.weights[weight]);
    }
    place(root, node);
  }
  simplify(root);
  return { root, nodes };
}

function place(root, node) {
  let group = root;
  for (const name of node.data.path) {
    let inner = group.children.findLast((child) => child instanceof Group && child.name === name);
    if (!inner) group.children.push((inner = new Group(name, group)));
    group = inner;
  }
  adopt(group, node);
}

function adopt(group, child) {
  child.parent = group;
  group.children.push(child);
}

/** Take apart modules of one step, tell calls of a small module apart, and make parts of a large one. */
function simplify(group) {
  const children = group.children;
  group.children = [];
  for (const child of children) {
    if (!(child instanceof Group)) adopt(group, child);
    else simplify(child).forEach((part) => adopt(group, part));
  }
  for (let level = 1; group.children.length > MANY; level += 1) group.children = parts(group, level);
  if (!group.parent) return [group];
  if (group.children.length === 1) {
    const [only] = group.children;
    if (only instanceof Group) only.name = `${group.name}.${only.name}`;
    else only.module = group.name;
    return [only];
  }
  return calls(group);
}

function parts(group, level) {
  const made = [];
  for (let start = 0; start < group.children.length; start += PART) {
    const part = new Group(`steps ${start + 1}–${Math.min(start + PART, group.children.length)}`, group);
    part.id = `${group.id}/${level}-${start}`;
    group.children.slice(start, start + PART).forEach((child) => adopt(part, child));
    made.push(part);
  }
  return made;
}

/** A small module as its calls: steps of it that hand something on belong together. */
function calls(group) {
  const whole = (child) => child instanceof Group || !child.data.kind; // a module, or an input or output of a block
  if (group.children.length > LOOSE || group.children.some(whole)) return [group];
  const found = [];
  for (const node of group.children) {
    const reached = found.filter((call) => call.some((other) => node.producers.includes(other)));
    const rest = found.filter((call) => !reached.includes(call));
    found.splice(0, found.length, ...rest, [...reached.flat(), node]);
  }
  if (found.length === 1) return [group];
  return found.map((nodes, index) => {
    if (nodes.length === 1) return Object.assign(nodes[0], { module: group.name });
    const call = new Group(group.name, group.parent);
    call.id = `${group.id}#${index}`;
    nodes.forEach((node) => adopt(call, node));
    return call;
  });
}
