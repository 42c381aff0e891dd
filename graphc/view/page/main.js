// What the page does.

const MEASURES = [
  ...(model.timed ? [{ name: "time", of: (node) => node.data.seconds, text: secondsText }] : []),
  { name: "operations", of: (node) => node.data.operations, text: operationsText },
  { name: "bytes", of: (node) => node.data.bytes, text: bytesText },
];
const FOUND = 40; // results of a search that are listed
const byId = (id) => document.getElementById(id);

const state = { open: new Set(), chosen: null, found: new Set(), measure: MEASURES[0], tree: null };
const canvas = new Canvas(byId("canvas"), byId("world"), (item, jump) => choose(item, jump), toggle);

function rebuild() {
  state.tree = buildTree(byId("views").checked);
  for (const child of state.tree.root.children)
    if (state.tree.root.children.length < 3 && child instanceof Group) state.open.add(child.id);
  draw();
}

/** Draw again; what stands at `anchor` stays where it is on the screen. */
function draw(anchor) {
  const before = anchor && canvas.corner(anchor.id);
  canvas.draw(state.tree.root, state.open, heatOf);
  const after = before && canvas.corner(anchor.id);
  if (after) canvas.moveBy(before.left - after.left, before.top - after.top);
  canvas.mark(state.chosen, state.found);
}

/** What a node or module costs by a measure. */
function costOf(item, of) {
  if (!(item instanceof Group)) return known(of(item));
  const costs = (item.costs ??= new Map());
  if (!costs.has(of)) costs.set(of, sum(item.steps, of));
  return costs.get(of);
}

/** An item's part of the most costly one beside it. */
function heatOf(item) {
  const { of } = state.measure;
  const most = (item.parent.most ??= new Map());
  if (!most.has(of)) most.set(of, Math.max(...item.parent.children.map((child) => costOf(child, of))));
  return most.get(of) ? costOf(item, of) / most.get(of) : 0;
}

function toggle(group) {
  state.open.has(group.id) ? state.open.delete(group.id) : state.open.add(group.id);
  forget(group);
  draw(group);
}

/** The layouts around an item are to be made again. */
function forget(item) {
  for (let group = item; group; group = group.parent) group.box = null;
}

function groups(group) {
  return group.children.filter((child) => child instanceof Group);
}

/** Open the closed modules that are shown; `all` those inside them too. */
function openModules(group, all = false) {
  group.box = null;
  for (const child of groups(group)) {
    const closed = !state.open.has(child.id);
    state.open.add(child.id);
    if (all || !closed) openModules(child, all);
  }
}

function closeModules() {
  state.open.clear();
  const clear = (group) => {
    group.box = null;
    groups(group).forEach(clear);
  };
  clear(state.tree.root);
}

/** Choose an item, or nothing; with `jump`, open the modules around it and go there. */
function choose(item, jump = false) {
  state.chosen = item;
  if (item && jump) {
    for (let group = item.parent; group?.parent; group = group.parent) state.open.add(group.id);
    forget(item.parent);
    draw();
    canvas.show(item.id);
  }
  canvas.mark(item, state.found);
  showPanel();
  history.replaceState(null, "", item ? `#${encodeURIComponent(item.id)}` : "#");
}

function showPanel() {
  const go = (item) => choose(item, true);
  const { chosen, measure, tree } = state;
  const content = !chosen
    ? modelPanel(tree.root, measure, go)
    : chosen instanceof Group
      ? groupPanel(chosen, measure, go)
      : nodePanel(chosen, tree.root.steps, go);
  byId("panel").replaceChildren(...content.filter(Boolean));
  byId("panel").scrollTop = 0;
}

/** All that names, modules, weights or shapes say of a node. */
function words(item) {
  if (item instanceof Group) return `${item.path} module`;
  const weights = item.weights.map((each) => each.name).join(" ");
  return `${item.path} ${titleOf(item)} ${item.data.source ?? ""} ${weights} ${item.data.shape.join(",")} ${item.data.type} ${item.kind}`;
}

function search(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const every = [...allGroups(state.tree.root), ...state.tree.nodes.values()];
  const found = wanted.length
    ? every.filter((item) => wanted.every((word) => words(item).toLowerCase().includes(word)))
    : [];
  state.found = new Set(found.map((item) => item.id));
  const rows = found.slice(0, FOUND).map((item) => {
    const note = item instanceof Group ? "module" : shapeText(item.data);
    return make(
      "li",
      {},
      link(
        item,
        (each) => {
          byId("found").hidden = true;
          choose(each, true);
        },
        note,
      ),
    );
  });
  const more = found.length > FOUND ? [make("li", { className: "more" }, `and ${found.length - FOUND} more`)] : [];
  byId("found").replaceChildren(
    ...(wanted.length && !found.length ? [make("li", { className: "more" }, "nothing")] : [...rows, ...more]),
  );
  byId("found").hidden = !wanted.length;
  canvas.mark(state.chosen, state.found);
}

function allGroups(group) {
  return groups(group).flatMap((child) => [child, ...allGroups(child)]);
}

function start() {
  document.title = `${model.name} · graphc`;
  byId("title").textContent = model.name;
  byId("measure").append(...MEASURES.map(({ name }) => make("option", {}, name)));
  byId("measure").addEventListener("change", (event) => {
    state.measure = MEASURES[event.target.selectedIndex];
    draw();
    showPanel();
  });
  byId("views").addEventListener("change", () => {
    state.chosen = null;
    rebuild();
    showPanel();
  });
  const buttons = {
    deeper: () => {
      openModules(state.tree.root);
      draw();
    },
    close: () => {
      closeModules();
      draw();
      canvas.fit();
    },
    fit: () => canvas.fit(),
  };
  for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", action);
  byId("search").addEventListener("input", (event) => search(event.target.value));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("found").querySelector("button")?.click();
  });
  byId("canvas").addEventListener("pointerdown", () => (byId("found").hidden = true));
  const keys = { "/": () => byId("search").focus(), "+": buttons.deeper, "-": buttons.close, f: buttons.fit };
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      byId("search").value = "";
      search("");
      choose(null);
    }
    if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  rebuild();
  canvas.fit();
  const wanted = decodeURIComponent(location.hash.slice(1));
  const item = state.tree.nodes.get(wanted) ?? allGroups(state.tree.root).find((group) => group.id === wanted);
  if (item) choose(item, true);
  else showPanel();
}

start();
