// The prompts: how many tokens they have, LoRAs with their weights, names to complete.

import { post } from './api.js';
import { completes } from './completion.js';
import { button, find, later, make, openDialog, signButton } from './dom.js';
import { choose, counts, on, parameter, state, value } from './state.js';

const NETWORK = /<(lora|lyco):([^:>]+)(?::([^>]*))?>/g;
const fields = new Map();

/** A text area of a prompt, with its count; also for prompts of a second pass. */
export function promptField(each, rows) {
  const id = each.name === 'prompt' ? 'prompt' : `p-${each.name}`;
  const count = make('output.tokens', { htmlFor: id, 'aria-live': 'off' });
  const area = make('textarea', { id, rows, spellcheck: false, value: value(each.name) ?? '', placeholder: each.says });
  const counted = later(() => count_(each, area, count), 300);
  area.addEventListener('input', () => {
    choose(each.name, area.value);
    counted();
  });
  counted();
  fields.set(each.name, { area, counted });
  const box = make('div.completed', {}, area);
  completes(area, box);
  return make('div.field.prompt', { 'data-name': each.name },
    make('div.label', {}, make('label', { htmlFor: id }, each.label), count), box);
}

async function count_(each, area, count) {
  try {
    const negative = each.name.includes('negative');
    const said = await post('/graphc/v1/tokens', { text: area.value, model: state.model, steps: value('steps') || 20, negative });
    const encoders = Object.entries(said.encoders);
    const one = ([name, { tokens, room }]) => (room === null ? `${tokens}` : `${tokens} / ${room}`) + (encoders.length > 1 ? ` ${name}` : '');
    count.textContent = `${encoders.map(one).join(' · ')} tokens`;
  } catch (problem) {
    count.textContent = problem.message;
  }
}

export function drawWords() {
  const loras = make('ul.loras', { 'aria-label': 'LoRAs of the prompt' });
  const add = button('Add a LoRA', () => openLoras());
  find('words').replaceChildren(
    promptField(parameter('prompt'), 4),
    make('div.networks', {}, loras, state.files.loras.length ? add : null),
    promptField(parameter('negative_prompt'), 2),
  );
  drawLoras();
  showNegative();
}

/** Put a text into a prompt, as if it had been typed. */
export function type(name, text) {
  choose(name, text);
  const field = fields.get(name);
  if (field) {
    field.area.value = text;
    field.counted();
  }
  if (name === 'prompt') drawLoras();
}

function showNegative() {
  const field = document.querySelector('[data-name="negative_prompt"]');
  if (field) field.hidden = !counts(parameter('negative_prompt'));
}

const written = (kind, name, weight) => `<${kind}:${name}:${weight}>`;

/** The LoRAs that the prompt names, each with its weight: the prompt is what counts, and these write into it. */
function drawLoras() {
  const list = document.querySelector('.loras');
  if (!list || list.contains(document.activeElement)) return;
  const known = new Set(state.files.loras.map((each) => each.name));
  const rows = [...(value('prompt') ?? '').matchAll(NETWORK)].map(([whole, kind, name, rest], place) => {
    const weight = Number.parseFloat(rest ?? '1');
    const shown = make('output', {}, Number.isFinite(weight) ? weight.toFixed(2) : '?');
    let now = whole;
    const slider = make('input', {
      type: 'range', min: -1, max: 2, step: 0.05, value: Number.isFinite(weight) ? weight : 1, 'aria-label': `Weight of ${name}`,
      oninput: () => {
        const next = written(kind, name, Number(slider.value));
        type('prompt', (value('prompt') ?? '').replace(now, () => next));
        now = next;
        shown.textContent = Number(slider.value).toFixed(2);
      },
    });
    const gone = known.has(name) ? null : make('em', {}, 'not there');
    const close = signButton('close', `Remove ${name}`, () => {
      type('prompt', (value('prompt') ?? '').replace(now, '').replace(/ {2,}/g, ' ').trim());
      find('prompt').focus();
      drawLoras();
    });
    return make('li', { 'data-place': place }, make('span.name', {}, name, gone), slider, shown, close);
  });
  list.replaceChildren(...rows);
}

function openLoras() {
  const list = make('ul.choices');
  const search = make('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search LoRAs', oninput: () => show() });
  const show = () => {
    const wanted = search.value.toLowerCase();
    const found = state.files.loras.filter((each) => `${each.name} ${each.words}`.toLowerCase().includes(wanted));
    list.replaceChildren(...found.map((each) => make('li', {}, make('button', { type: 'button', onclick: () => take(each) },
      make('b', {}, each.name), make('span', {}, each.words)))));
  };
  const take = (each) => {
    const words = each.words && !(value('prompt') ?? '').includes(each.words) ? `, ${each.words}` : '';
    type('prompt', `${value('prompt') ?? ''}${words} ${written('lora', each.name, 1)}`.trim());
    dialog.close();
  };
  const dialog = openDialog('loras', 'LoRAs', make('div.inside', {}, search, list));
  show();
  search.focus();
}

on('chosen', (name) => {
  if (name === 'prompt') drawLoras();
  if (name === 'cfg_scale') showNegative();
});
