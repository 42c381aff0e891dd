// What was painted and kept: found by its words, shown with how it was made, two compared.

import { get } from './api.js';
import { showDetail } from './detail.js';
import { fault, find, later, make } from './dom.js';
import { comparing } from './stage.js';
import { on } from './state.js';

let next = null;
let chosen = [];
let asked = 0;

async function load(more) {
  const turn = ++asked;
  const query = { search: find('search').value, limit: 60, ...(more && next ? { before: next } : {}) };
  try {
    const found = await get('/graphc/v1/pictures', query);
    if (turn !== asked) return;
    next = found.next;
    if (!more) { find('pictures').replaceChildren(); chosen = []; }
    find('pictures').append(...found.pictures.map(tile));
    find('more').hidden = next === null;
    find('none').hidden = find('pictures').childElementCount > 0;
    showChosen();
  } catch (problem) {
    fault(problem.message);
  }
}

function tile(picture) {
  const said = picture.prompt || 'A picture without a prompt';
  const mark = make('input', { type: 'checkbox', 'aria-label': `Compare: ${said.slice(0, 60)}`, onchange: () => {
    chosen = mark.checked ? [...chosen, picture].slice(-2) : chosen.filter((each) => each.address !== picture.address);
    showChosen();
  } });
  return make('li', { 'data-address': picture.address },
    make('button.tile', { type: 'button', 'aria-label': `Show how it was made: ${said.slice(0, 100)}`, onclick: () => showDetail(picture.address) },
      make('img', { src: picture.small, alt: '', loading: 'lazy' })),
    make('label.mark', {}, mark), make('p', { title: said }, said));
}

function showChosen() {
  const some = new Set(chosen.map((each) => each.address));
  for (const each of find('pictures').children) each.querySelector('input').checked = some.has(each.dataset.address);
  find('compare').disabled = chosen.length !== 2;
}

/** Arrow keys go from picture to picture, as they lie. */
function arrows(event) {
  const tiles = [...document.querySelectorAll('#pictures .tile')];
  const at = tiles.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = getComputedStyle(find('pictures')).gridTemplateColumns.split(' ').length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  if (!(event.key in steps)) return;
  event.preventDefault();
  tiles[Math.min(Math.max(at + steps[event.key], 0), tiles.length - 1)].focus();
}

export const drawGallery = () => load(false);

export function startGallery() {
  find('search').addEventListener('input', later(() => load(false), 200));
  find('more').addEventListener('click', () => load(true));
  find('pictures').addEventListener('keydown', arrows);
  find('compare').addEventListener('click', () => {
    const [second, first] = chosen.sort((one, other) => other.number - one.number);
    location.hash = '#create';
    comparing(first.url, second.url);
  });
  on('removed', (address) => {
    document.querySelector(`#pictures [data-address="${CSS.escape(address)}"]`)?.remove();
    chosen = chosen.filter((each) => each.address !== address);
    find('none').hidden = find('pictures').childElementCount > 0;
    showChosen();
  });
}
