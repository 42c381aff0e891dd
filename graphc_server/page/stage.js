// The large picture: previews while it is painted, the finished one with what can be done with it, and those before it.

import { get, post, remove } from './api.js';
import { compare } from './compare.js';
import { showDetail } from './detail.js';
import { editor } from './editor.js';
import { button, fault, find, later, make, note, speak } from './dom.js';
import { begin, useAgain } from './use.js';
import { on, state } from './state.js';

/** What the stage is used for: `picture` follows what is painted; editor, compare and plot are not taken away. */
let mode = 'picture';
let shown = null;
let painting = null;
let said = 0;

/** Have an element on the stage, as large as fits with this shape. */
export function put(kind, element, ...actions) {
  mode = kind;
  find('canvas').replaceChildren(element);
  find('actions').replaceChildren(...actions);
  find('actions').hidden = !actions.length;
  fitAll();
}

/** Elements with `data-shape` (width / height) are as large as the stage allows. */
export function fitAll() {
  const canvas = find('canvas');
  for (const each of canvas.querySelectorAll('[data-shape]')) {
    const shape = Number(each.dataset.shape);
    const width = Math.min(canvas.clientWidth, canvas.clientHeight * shape);
    each.style.width = `${Math.floor(width)}px`;
    each.style.height = `${Math.floor(width / shape)}px`;
  }
}

function image(url, alt) {
  const picture = make('img.picture', { src: url, alt, draggable: true });
  const shape = () => { picture.dataset.shape = picture.naturalWidth / picture.naturalHeight; fitAll(); };
  if (picture.complete && picture.naturalWidth) shape();
  else picture.addEventListener('load', shape);
  return picture;
}

/** Show a finished picture of the gallery. */
export function show(picture) {
  const before = shown && shown.address !== picture.address ? shown : null;
  shown = picture;
  const actions = [
    button('Use again', () => useAgain(picture.address)),
    button('Begin with it', () => begin(picture.url)),
    button('Edit', async () => { if (await begin(picture.url, true)) edit(); }),
    state.start ? button('Back to the mask', edit) : null,
    state.start || before ? button('Compare', () => comparing(state.start?.url ?? before.url, picture.url)) : null,
    make('a.button', { href: picture.url, download: picture.url.split('/').slice(-3, -1).join('-') }, 'Download'),
    button('Details', () => showDetail(picture.address)),
  ].filter(Boolean);
  put('picture', image(picture.url, picture.prompt || 'A picture without a prompt'), ...actions);
  for (const each of find('recent').querySelectorAll('button')) each.setAttribute('aria-pressed', String(each.dataset.address === picture.address));
}

export function comparing(first, second) {
  put('compare', compare(first, second), button('Done', leave));
}

/** Paint a mask over the picture to begin with, or extend it. */
export function edit() {
  location.hash = '#create';
  const made = editor(state.start);
  put('editor', made.element, ...made.tools, button('Done', leave, 'main'));
  made.fit();
}

function leave() {
  mode = 'picture';
  if (shown) show(shown);
  else put('picture', empty());
}

function empty() {
  return make('div.empty.first', {}, make('h2', {}, 'What shall be painted?'), make('p', {}, 'Write what is to be seen, and press Paint, or Ctrl and Enter.'),
    make('p', {}, 'Drop a picture anywhere to have its settings again.'));
}

/** The last pictures; `wanted` says which of them is shown large, if nothing else is on the stage. */
export async function drawRecent(wanted = () => false) {
  const { pictures } = await get('/graphc/v1/pictures', { limit: 16 });
  find('recent').replaceChildren(...pictures.map((each) => make('li', {}, make('button.thumb', {
    type: 'button', 'data-address': each.address, 'aria-pressed': String(shown?.address === each.address), title: each.prompt,
    'aria-label': `Show: ${each.prompt.slice(0, 80) || 'without a prompt'}`, onclick: () => show(each),
  }, make('img', { src: each.small, alt: '', loading: 'lazy' })))));
  const found = pictures.find(wanted);
  if (found && mode === 'picture') show(found);
}

let own = null;
const newest = later(() => drawRecent((picture) => picture.job === own).catch(() => {}), 60);

/** The last events of jobs that are not known to be of this page: of a short one they come before the answer that tells its name. */
const unclaimed = [];
function foreign(kind, event) {
  unclaimed.push([kind, event]);
  unclaimed.splice(0, unclaimed.length - 64);
}

const heard = {
  progress(event) {
    if (!state.mine.has(event.job) || (painting && painting !== event.job && state.mine.has(painting))) return;
    painting = event.job;
    find('progress').hidden = false;
    find('finish').hidden = false;
    find('bar').value = event.share;
    const left = event.seconds_left ? `, ${duration(event.seconds_left)} left` : '';
    const batch = event.batches > 1 ? `Picture ${Math.min(event.batch + 1, event.batches)} of ${event.batches}, s` : 'S';
    const pass = event.passes > 1 ? ` of pass ${event.pass}` : '';
    find('step').textContent = event.steps ? `${batch}tep ${event.step} of ${event.steps}${pass}${left}` : 'Begins';
    const quarter = Math.floor(event.share * 4);
    if (quarter !== said) speak(`${quarter * 25} percent`);
    said = quarter;
  },
  preview(event) {
    if (event.job !== painting || mode !== 'picture') return;
    const now = find('canvas').querySelector('img.preview');
    if (now) now.src = event.picture;
    else {
      const picture = image(event.picture, 'Preview of the picture that is being painted');
      picture.classList.add('preview');
      put('picture', picture);
    }
  },
  picture(event) {
    if (state.mine.has(event.job)) own = event.job;
    else foreign('picture', event);
    newest();
  },
  job(event) {
    if (!['done', 'failed', 'cancelled'].includes(event.state)) return;
    if (!state.mine.delete(event.job)) return foreign('job', event);
    if (event.job === painting || !painting) ended();
    if (event.state === 'failed') fault(event.error);
    if (event.state === 'cancelled') leave();
    speak({ done: 'The picture is finished', failed: 'The picture failed', cancelled: 'Cancelled' }[event.state]);
    if (event.remarks?.length) note(event.remarks.join('; '));
  },
};

function ended() {
  painting = null;
  said = 0;
  find('progress').hidden = state.mine.size === 0;
  find('finish').hidden = true;
  find('bar').removeAttribute('value');
  find('step').textContent = 'Waits for its turn';
}

function duration(seconds) {
  return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** A job was put into the queue here, and is what the stage shows next. */
export function follow(id) {
  state.mine.add(id);
  if (mode !== 'picture') leave();
  if (!painting) ended();
  find('progress').hidden = false;
  for (const [kind, event] of unclaimed.filter(([, each]) => each.job === id)) heard[kind](event);
}

/** What is so, after the connection was lost or the page loaded anew: jobs of before that are in the queue, and those that are not. */
export async function catchUp() {
  const asked = [...state.mine];
  const { jobs } = await get('/graphc/v1/jobs', { limit: 1000 });
  const there = new Set(jobs.map((job) => job.id));
  for (const id of asked.filter((each) => !there.has(each))) {
    heard.job({ job: id, ...await get(`/graphc/v1/jobs/${id}`) });
    own = id;
  }
  for (const job of jobs) if (job.mine && job.protocol === 'graphc') state.mine.add(job.id);
  if (!state.mine.has(painting)) ended();
  find('progress').hidden = state.mine.size === 0;
  await drawRecent((picture) => !shown || picture.job === own);
}

/** Ask for something about the job at hand; that it is over already is no fault. */
async function about(ask) {
  const id = painting ?? [...state.mine][0];
  if (!id) return;
  await ask(id).catch((problem) => { if (problem.status !== 409) fault(problem.message); });
}

export function startStage() {
  put('picture', empty());
  new ResizeObserver(fitAll).observe(find('canvas'));
  find('cancel').addEventListener('click', () => about((id) => remove(`/graphc/v1/jobs/${id}`)));
  find('finish').addEventListener('click', () => about((id) => post(`/graphc/v1/jobs/${id}/interrupt`)));
  on('edit', edit);
  on('removed', (address) => {
    if (shown?.address === address) { shown = null; if (mode === 'picture') put('picture', empty()); }
    drawRecent().catch(() => {});
  });
  return heard;
}

