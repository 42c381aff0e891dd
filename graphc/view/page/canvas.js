// The drawing, and moving about in it.

const KINDS = {
  product: "products and convolutions",
  norm: "normalization and softmax",
  pointwise: "element by element",
  kernel: "generated kernels",
  copy: "copies",
  host: "the host's branches and loops",
  view: "views: no work",
};

const ROUND = 18; // the radius of an edge's corners

class Canvas {
  constructor(element, world, onSelect, onToggle) {
    Object.assign(this, { element, world, onSelect, onToggle, x: 0, y: 0, scale: 1, cards: new Map() });
    this.listen();
  }

  /** Draw an open root; `heat` says how long an item's bar is, from 0 to 1. */
  draw(root, open, heat) {
    Object.assign(this, { open, heat });
    root.box ??= layout(root, open);
    this.cards.clear();
    this.world.replaceChildren(...this.content(root));
    this.size = root.box;
  }

  content(group) {
    const edges = makeSvg("svg", { class: "edges", width: group.box.width, height: group.box.height });
    for (const edge of group.box.edges) edges.append(this.edge(edge));
    return [edges, ...group.box.places.map((place) => this.card(place))];
  }

  edge({ from, to, nodes, points }) {
    const names = [...nodes].slice(0, 8).map((node) => `${titleOf(node)}  ${shapeText(node.data)}`);
    const copied = [...nodes].some((node) => node.kind === "copy");
    const line = makeSvg("path", { d: curve(points), class: copied ? "edge copied" : "edge" });
    const tip = makeSvg("title");
    tip.textContent = names.join("\n");
    line.append(tip);
    line.dataset.from = idOf(from);
    line.dataset.to = idOf(to);
    return line;
  }

  card({ item, x, y, width, height }) {
    const card = item.pin ? this.pin(item) : item instanceof Group ? this.group(item) : this.step(item);
    Object.assign(card.style, { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` });
    if (!item.pin) {
      card.dataset.id = item.id;
      this.cards.set(item.id, card);
    }
    card.addEventListener("click", (event) => {
      event.stopPropagation();
      if (!this.dragged) this.onSelect(item.pin ? item.node : item, item.pin);
    });
    return card;
  }

  pin({ node, out, group }) {
    const readers = new Set(
      node.readers.filter((reader) => !group.holding(reader)).map((reader) => seenFrom(group, reader)),
    );
    const text = out ? [...readers].join(", ") : seenFrom(group, node);
    return make("div", { className: "pin", title: `${node.path} ${titleOf(node)}` }, out ? `${text} ↓` : `↓ ${text}`);
  }

  step(node) {
    const data = node.data;
    const operations = known(data.operations) ? operationsText(data.operations) : "";
    const cost = isWithin(node)
      ? "in a later step"
      : data.seconds === undefined
        ? operations
        : secondsText(data.seconds);
    return make(
      "div",
      {
        className: `card step ${node.kind}${isWithin(node) ? " within" : ""}`,
        title: `${node.path}\n${data.source ?? ""}`,
      },
      make("b", {}, titleOf(node)),
      make("span", {}, shapeText(data)),
      make("i", {}, cost),
      this.bar(node),
    );
  }

  group(group) {
    const opened = this.open.has(group.id);
    const steps = group.steps.filter((node) => node.data.kind);
    const copies = steps.filter((node) => node.kind === "copy").length;
    const seconds = sum(steps, (node) => node.data.seconds);
    const operations = sum(steps, (node) => node.data.operations);
    const cost = model.timed ? secondsText(seconds) : operations ? operationsText(operations) : "";
    const toggle = make("button", { className: "toggle", title: opened ? "Close" : "Open" }, opened ? "▾" : "▸");
    toggle.addEventListener("click", (event) => {
      event.stopPropagation();
      this.onToggle(group);
    });
    const card = make(
      "div",
      { className: opened ? "card group opened" : "card group", title: group.path },
      toggle,
      make("b", {}, group.name),
      make("span", {}, [`${steps.length} step${steps.length === 1 ? "" : "s"}`, cost].filter(Boolean).join(" · ")),
      copies ? make("em", {}, `${copies} ${copies > 1 ? "copies" : "copy"}`) : null,
      opened ? null : this.bar(group),
    );
    card.addEventListener("dblclick", (event) => {
      event.stopPropagation();
      this.onToggle(group);
    });
    if (opened) card.append(...this.content(group));
    return card;
  }

  bar(item) {
    const bar = make("u", { className: "bar" });
    bar.style.width = `${100 * this.heat(item)}%`;
    return bar;
  }

  /** Mark the chosen item, with the edges at it, and nodes that were searched for. */
  mark(chosen, found) {
    for (const [id, card] of this.cards) {
      card.classList.toggle("chosen", id === chosen?.id);
      card.classList.toggle("found", found.has(id));
    }
    for (const line of this.world.querySelectorAll(".edge")) {
      const near = Boolean(chosen) && [line.dataset.from, line.dataset.to].includes(chosen.id);
      line.classList.toggle("near", near);
      if (near) line.parentNode.append(line); // above those that share its way
    }
  }

  /** Where an item's left upper corner is on the screen. */
  corner(id) {
    const card = this.cards.get(id);
    return card && card.getBoundingClientRect();
  }

  moveBy(x, y) {
    this.x += x;
    this.y += y;
    this.world.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
  }

  /** Change the scale around a point of the screen. */
  zoom(factor, x, y) {
    const scale = Math.min(2, Math.max(0.04, this.scale * factor));
    const frame = this.element.getBoundingClientRect();
    const change = scale / this.scale;
    this.scale = scale;
    this.moveBy((x - frame.left - this.x) * (1 - change), (y - frame.top - this.y) * (1 - change));
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.element;
    this.scale = Math.min(1, Math.max(0.04, Math.min(width / this.size.width, height / this.size.height)));
    if (this.size.height * this.scale < height || this.scale > 0.35) return this.centre(0);
    this.scale = Math.min(1, width / this.size.width, 0.9); // a tall graph: its beginning
    return this.centre(0);
  }

  centre(top) {
    const width = this.element.clientWidth;
    this.moveBy((width - this.size.width * this.scale) / 2 - this.x, top - this.y);
  }

  /** Bring an item to the middle. */
  show(id) {
    const box = this.corner(id);
    if (!box) return;
    if (this.scale < 0.5) this.zoom(0.8 / this.scale, box.left, box.top);
    const [frame, now] = [this.element.getBoundingClientRect(), this.corner(id)];
    const high = Math.min(now.height, frame.height - 40) / 2;
    this.moveBy(frame.left + (frame.width - now.width) / 2 - now.left, frame.top + frame.height / 2 - high - now.top);
  }

  listen() {
    const element = this.element;
    element.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 200), event.clientX, event.clientY);
        else this.moveBy(-event.deltaX, -event.deltaY);
      },
      { passive: false },
    );
    element.addEventListener("pointerdown", (event) => {
      this.from = { x: event.clientX, y: event.clientY };
      this.dragged = false;
    });
    addEventListener("pointermove", (event) => {
      if (!this.from) return;
      const [x, y] = [event.clientX - this.from.x, event.clientY - this.from.y];
      if (!this.dragged && Math.hypot(x, y) < 4) return;
      this.dragged = true;
      this.from = { x: event.clientX, y: event.clientY };
      this.moveBy(x, y);
    });
    addEventListener("pointerup", () => (this.from = null));
    element.addEventListener("click", () => this.dragged || this.onSelect(null));
  }
}

/** A line through the points of an edge, its corners round. */
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const towards = (from, to) => {
    const far = Math.hypot(to.x - from.x, to.y - from.y);
    const part = far ? Math.min(ROUND, far / 2) / far : 0;
    return { x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part };
  };
  const corners = points.slice(1, -1).map((point, index) => {
    return `L ${at(towards(point, points[index]))} Q ${at(point)} ${at(towards(point, points[index + 2]))}`;
  });
  return [`M ${at(points[0])}`, ...corners, `L ${at(points[points.length - 1])}`].join(" ");
}

/** What a node outside of a module is called there: itself, or the module beside it that holds the node. */
function seenFrom(group, node) {
  for (let around = group.parent; around; around = around.parent) {
    const item = around.holding(node);
    if (item) return titleOf(item);
  }
  return titleOf(node);
}

/** Whether a step was not computed by itself when the model was timed. */
function isWithin({ kind, data }) {
  return model.timed && data.kind && !["view", "host"].includes(kind) && data.seconds === undefined;
}

/** What a node or module is called. */
function titleOf(item) {
  if (item instanceof Group) return item.name;
  return item.module ? `${item.module}: ${item.data.name}` : item.data.name;
}
