// What is known of the model, or of what was chosen.

/** Rows of names and values; what is empty is left out. */
function facts(rows) {
  const list = make("dl");
  for (const [name, value] of rows) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", {}, name), make("dd", {}, ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}

function link(item, go, note = "") {
  const about = [make("b", {}, titleOf(item)), make("small", {}, note), item.path && make("span", {}, item.path)];
  const button = make("button", { className: `link ${item.kind ?? ""}` }, ...about.filter(Boolean));
  button.addEventListener("click", () => go(item));
  return button;
}

function section(title, ...content) {
  return content.length ? make("section", {}, make("h2", {}, title), ...content) : null;
}

function table(headers, rows) {
  const head = make("tr", {}, ...headers.map((text) => make("th", {}, text)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, head, ...body);
}

/** The costs of steps together. */
function costs(steps) {
  const seconds = sum(steps, (node) => node.data.seconds);
  const operations = sum(steps, (node) => node.data.operations);
  const bytes = sum(steps, (node) => node.data.bytes);
  const symbolic = steps.some((node) => typeof node.data.operations === "string");
  return [
    ["time", model.timed ? secondsText(seconds) : ""],
    ["operations", symbolic && !operations ? "depend on sizes" : operationsText(operations)],
    ["reads, writes", bytes ? bytesText(bytes) : ""],
    ["reached", seconds && operations ? `${(operations / seconds / 1e9).toFixed(1)} GFLOP/s` : ""],
    ["", seconds && bytes ? `${(bytes / seconds / 1e9).toFixed(1)} GB/s` : ""],
  ];
}

/** Steps by kind, and the most costly ones. */
function breakdown(steps, measure, go) {
  const whole = sum(steps, measure.of);
  const rows = Object.entries(KINDS).map(([kind, about]) => {
    const some = steps.filter((node) => node.kind === kind);
    return [kind, about, some, sum(some, measure.of)];
  });
  const kinds = rows
    .filter(([, , some]) => some.length)
    .map(([kind, about, some, cost]) => [
      make("span", { className: `swatch ${kind}`, title: about }, about),
      String(some.length),
      cost ? measure.text(cost) : "",
      shareText(cost, whole),
    ]);
  const costly = steps
    .filter((node) => known(measure.of(node)))
    .sort((a, b) => known(measure.of(b)) - known(measure.of(a)));
  return [
    section("Steps by kind", table(["", "steps", measure.name, "share"], kinds)),
    section(
      `Most ${measure.name}`,
      ...costly.slice(0, 10).map((node) => link(node, go, measure.text(measure.of(node)))),
    ),
  ];
}

/** How many kernels were generated for a device, and how often they are launched; nothing of other devices. */
function kernelsText(steps) {
  const count = Object.keys(model.kernels).length;
  const launches = sum(steps, (node) => node.data.launches?.length ?? 0);
  return count ? `${count}, launched ${launches} times` : "";
}

function modelPanel(root, measure, go) {
  const steps = root.steps.filter((node) => node.data.kind);
  const copies = steps.filter((node) => node.kind === "copy");
  const ports = (items) =>
    items.map((each) => make("p", { className: "port" }, make("b", {}, each.name), " ", shapeText(each)));
  const sizes = Object.entries(model.sizes).map(([name, size]) => `${name} = ${size}`);
  return [
    make("h1", {}, model.name),
    facts([
      ["steps", String(steps.length)],
      ["weights", `${model.weights.length}, ${bytesText(sum(model.weights, (each) => each.bytes))}`],
      ["kernels", kernelsText(steps)],
      ...costs(steps),
      ["copies", `${copies.length}, ${bytesText(sum(copies, (node) => node.data.bytes))}`],
      ["sizes", sizes.join(", ")],
    ]),
    section("Inputs", ...ports(model.inputs.filter((each) => !each.path.length))),
    section("Outputs", ...ports(model.outputs.filter((each) => !each.path.length))),
    ...breakdown(steps, measure, go),
  ];
}

function groupPanel(group, measure, go) {
  const steps = group.steps.filter((node) => node.data.kind);
  const copies = steps.filter((node) => node.kind === "copy");
  const weights = new Set(steps.flatMap((node) => node.weights));
  return [
    make("p", { className: "above" }, "module"),
    make("h1", {}, group.path),
    facts([
      ["steps", String(steps.length)],
      ...costs(steps),
      ["copies", copies.length ? `${copies.length}, ${bytesText(sum(copies, (node) => node.data.bytes))}` : ""],
      ["weights", weights.size ? `${weights.size}, ${bytesText(sum([...weights], (each) => each.bytes))}` : ""],
    ]),
    ...breakdown(steps, measure, go),
  ];
}

/** How a step's kernels are launched, and their texts. */
function launched(node, steps, go) {
  const launches = node.data.launches ?? [];
  return launches.map(({ kernel, blocks, threads, shared }) => {
    const text = make("details", {}, make("summary", {}, "text"), make("pre", {}, model.kernels[kernel] ?? ""));
    const same = (each) => each !== node && each.data.launches?.some((launch) => launch.kernel === kernel);
    const others = steps.filter(same).map((each) => link(each, go, shapeText(each.data)));
    return section(
      `Kernel ${kernel}`,
      facts([
        ["blocks", `[${blocks.join(", ")}]`],
        ["threads", String(threads)],
        ["shared", bytesText(shared)],
      ]),
      text,
      others.length ? make("details", {}, make("summary", {}, `launched by ${others.length} more steps`), ...others) : "",
    );
  });
}

function nodePanel(node, steps, go) {
  const data = node.data;
  const weights = node.weights.map((each) =>
    make("p", { className: "port" }, make("b", {}, each.name || "constant"), " ", shapeText(each)),
  );
  return [
    make("p", { className: "above" }, KINDS[node.kind] ?? node.kind.replace(/s$/, "")),
    make("h1", {}, data.name),
    facts([
      ["result", shapeText(data)],
      ["module", node.path],
      ["node", data.source],
      ["settings", data.settings],
      ...(data.kind ? costs([node]) : []),
      ["runs", data.runs > 1 ? String(data.runs) : ""],
      ["holds", data.held ? bytesText(data.held) : ""],
      ["", isWithin(node) ? "not computed by itself: part of a later step" : ""],
    ]),
    ...launched(node, steps, go),
    section("Weights", ...weights),
    section("Reads", ...node.producers.map((each) => link(each, go, shapeText(each.data)))),
    section("Read by", ...node.readers.map((each) => link(each, go, shapeText(each.data)))),
  ];
}
