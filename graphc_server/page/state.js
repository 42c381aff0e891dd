// What the page knows: the model and its parameters, what was chosen, and the picture to begin with.

const KEPT = 'graphc';
const LASTING = ['chosen', 'everything', 'model', 'axes', 'vae', 'previewEvery', 'previewBy'];
const listeners = new Map();

export const state = {
  files: { models: [], loras: [], embeddings: [], vaes: [] },
  model: '',
  /** Of the model: `parameters`, `axes`, `samplers`, `unit`, `architecture`. */
  described: null,
  /** Values that are not the model's usual ones, by name. */
  chosen: {},
  everything: false,
  vae: '',
  previewEvery: 1,
  previewBy: 'rough',
  /** The picture to begin with: `{ url, width, height, margins, strokes, mask }`; `url` is a data URI. */
  start: null,
  /** Pictures of other parameters, by name: data URIs. */
  pictures: {},
  axes: { x: { name: '', values: '' }, y: { name: '', values: '' }, z: { name: '', values: '' } },
  /** ControlNets: `{ model, image, module, weight, … }`; pictures are data URIs. */
  controls: [],
  /** Jobs that were asked for here, and have not ended. */
  mine: new Set(),
};

/** Have something run when a topic changes: model, chosen, start, queue. */
export function on(topic, run) {
  if (!listeners.has(topic)) listeners.set(topic, []);
  listeners.get(topic).push(run);
}

export function changed(topic, ...what) {
  for (const run of listeners.get(topic) ?? []) run(...what);
  keep();
}

export const parameter = (name) => state.described?.parameters.find((each) => each.name === name);

/** The value that counts: what was chosen, or what is usual. */
export const value = (name) => state.chosen[name] ?? parameter(name)?.usual ?? null;

export function choose(name, given) {
  const usual = parameter(name)?.usual ?? null;
  if (given === null || given === '' || given === usual) delete state.chosen[name];
  else state.chosen[name] = given;
  changed('chosen', name);
}

const LARGER = ['hires_scale', 'hires_width', 'hires_height'];
const NEEDS = {
  image: () => Boolean(state.start),
  mask: () => hasMask(),
  only_masked: () => hasMask() && value('only_masked'),
  hires: () => !state.start && (value('hires_scale') > 1 || value('hires_width') || value('hires_height')),
  cfg: () => value('cfg_scale') > 1,
  subseed_strength: () => value('subseed_strength') > 0,
  beta: () => String(value('scheduler')).startsWith('Beta'),
  refiner: () => Boolean(value('refiner')),
};

export const hasMask = () => Boolean(state.start && (state.start.mask || extended()));
export const extended = () => Boolean(state.start && Object.values(state.start.margins).some((side) => side > 0));

/** Whether a parameter has an effect with what is chosen. */
export function counts(each) {
  if (LARGER.includes(each.name)) return !state.start;
  if (each.when === 'sampler') return (state.described.samplers[value('sampler')] ?? []).includes(each.name);
  return !each.when || NEEDS[each.when]();
}

/** The settings as the server has them. */
export function settings() {
  const found = {};
  for (const each of state.described.parameters) {
    if (each.name in state.chosen && counts(each)) found[each.name] = state.chosen[each.name];
    else if (state.pictures[each.name]) found[each.name] = each.kind === 'pictures' ? [state.pictures[each.name]] : state.pictures[each.name];
  }
  if (state.controls.length && parameter('controls')) found.controls = state.controls;
  if (state.start) {
    found.image = state.start.url;
    if (state.start.mask) found.mask = state.start.mask;
  }
  return found;
}

export function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? '{}');
    for (const name of LASTING) if (name in kept) state[name] = kept[name];
  } catch {
    localStorage.removeItem(KEPT);
  }
}

function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(LASTING.map((name) => [name, state[name]]))));
  } catch {
    // private windows may have no room
  }
}
