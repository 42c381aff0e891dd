// What begins when the page is loaded, and what the large button does.

import { get, listen, post } from './api.js';
import { button, fault, find, make, speak } from './dom.js';
import { drawGroups, startForm } from './form.js';
import { drawGallery, startGallery } from './gallery.js';
import { drawAxes, paintPlot, startPlots, wanted } from './plots.js';
import { draw as drawQueue, startQueue } from './queue.js';
import { catchUp, follow, startStage } from './stage.js';
import { changed, extended, on, restore, settings, state } from './state.js';
import { startTheme } from './theme.js';
import { leaveStart, startUse } from './use.js';
import { drawWords } from './words.js';


const VIEWS = { create: () => {}, gallery: drawGallery, queue: drawQueue };

function showView() {
  const view = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : 'create';
  for (const name of Object.keys(VIEWS)) find(name).hidden = name !== view;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = { create: 'graphc', gallery: 'Gallery · graphc', queue: 'Queue · graphc' }[view];
  VIEWS[view]();
}

async function loadFiles() {
  state.files = await get('/graphc/v1/files');
  const names = state.files.models.map((each) => each.name);
  if (!names.includes(state.model)) state.model = state.files.selected ?? '';
  const listed = [...find('model').options].map((option) => option.value);
  if (listed.join('\n') !== names.join('\n')) find('model').replaceChildren(...names.map((name) => make('option', { value: name }, name)));
  find('model').value = state.model;
}

async function loadModel() {
  find('model').value = state.model;
  try {
    state.described = await get('/graphc/v1/parameters', { model: state.model });
  } catch (problem) {
    if (!state.described) throw problem;
    fault(problem.message);
    state.model = state.described.model;
    find('model').value = state.model;
    return;
  }
  const known = new Set(state.described.parameters.map((each) => each.name));
  for (const name of Object.keys(state.chosen)) if (!known.has(name)) delete state.chosen[name];
  drawAll();
}

/** All fields anew. Who writes in one of them goes on. */
function drawAll() {
  const { id, selectionStart, selectionEnd } = document.activeElement;
  drawWords();
  drawGroups();
  drawAxes();
  drawStart();
  const field = id && find(id);
  if (!field) return;
  field.focus();
  if (field.matches('textarea')) field.setSelectionRange(selectionStart, selectionEnd);
}

function drawStart() {
  const place = find('start');
  if (!place) return;
  const { start } = state;
  place.replaceChildren(...(start ? [
    make('img', { src: start.url, alt: 'The picture to begin with' }),
    make('div.toolbar', {}, button('Paint over a part, or extend', () => changed('edit')), button('Without it', leaveStart)),
  ] : []));
}

/** What is asked for, as `/graphc/v1/jobs` has it. */
function asked() {
  const body = { model: state.model, settings: settings(), preview: { every: state.previewEvery, by: state.previewBy } };
  if (state.files.vaes.includes(state.vae)) body.vae = state.vae;
  if (extended()) body.outpaint = { ...state.start.margins };
  return body;
}

/** A promise, kept as soon as events are heard: none of a job is to be missed. */
let listening;
const connected = new Promise((resolve) => { listening = resolve; });

async function paint() {
  find('faults').replaceChildren();
  try {
    await Promise.race([connected, new Promise((resolve) => setTimeout(resolve, 3000))]);
    if (wanted()) await paintPlot(asked());
    else follow((await post('/graphc/v1/jobs', asked())).id);
    if (matchMedia('(max-width: 719px)').matches) find('stage').scrollIntoView({ block: 'start' });
  } catch (problem) {
    fault(problem.message);
  }
}

async function start() {
  restore();
  startTheme();
  startForm();
  startGallery();
  startUse();
  const listeners = [startStage(), startQueue(), startPlots()];
  find('form').addEventListener('submit', (event) => { event.preventDefault(); paint(); });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); paint(); }
  });
  find('model').addEventListener('change', () => { state.model = find('model').value; loadModel(); });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) loadFiles().catch(() => {}); });
  on('start', () => { drawGroups(); drawAxes(); drawStart(); });
  on('restored', () => loadModel());
  window.addEventListener('hashchange', showView);
  showView();
  try {
    await loadFiles();
    if (!state.files.models.length) throw new Error('There is no model in the folders that the server was started with.');
    await loadModel();
  } catch (problem) {
    fault(problem.message);
  }
  const all = (kind) => (event) => listeners.forEach((each) => each[kind]?.(event));
  const source = listen(Object.fromEntries(['job', 'progress', 'preview', 'picture'].map((kind) => [kind, all(kind)])));
  source.addEventListener('open', () => {
    listening();
    drawQueue();
    catchUp().catch((problem) => fault(problem.message));
  });
  source.addEventListener('error', () => speak('The connection to the server is lost; it is tried again'));
}

start();
