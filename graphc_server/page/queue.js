// The jobs that are painted or wait, of everybody, in the order of their turns.

import { get, post, put, remove } from './api.js';
import { fault, find, later, make, note, signButton } from './dom.js';
import { state } from './state.js';

async function attempt(run) {
  try {
    await run();
  } catch (problem) {
    if (problem.status !== 409) fault(problem.message);
  }
  draw();
}

export const draw = later(async () => {
  try {
    const { jobs, count } = await get('/graphc/v1/jobs');
    find('waiting').textContent = count;
    find('waiting').hidden = count === 0;
    find('waiting').setAttribute('aria-label', `${count} jobs`);
    find('idle').hidden = count > 0;
    const focused = document.activeElement?.dataset?.job;
    const own = jobs.filter((job) => job.mine && job.state === 'waiting').map((job) => job.id);
    find('jobs').replaceChildren(...jobs.map((job) => row(job, own)));
    if (focused) document.querySelector(`[data-job="${CSS.escape(focused)}"]`)?.focus();
  } catch (problem) {
    fault(problem.message);
  }
}, 80);

function row(job, own) {
  const said = job.prompt || 'without a prompt';
  const place = own.indexOf(job.id);
  const move = (to) => attempt(() => put(`/graphc/v1/jobs/${job.id}/place`, { place: to }));
  const cancel = make('button.quiet', { type: 'button', 'data-job': `${job.id} cancel`, 'aria-label': `Cancel: ${said.slice(0, 60)}`,
    onclick: () => attempt(() => remove(`/graphc/v1/jobs/${job.id}`)) }, 'Cancel');
  const moves = place < 0 ? [] : [
    signButton('up', `Sooner: ${said.slice(0, 60)}`, () => move(place - 1), { disabled: place === 0, 'data-job': `${job.id} up` }),
    signButton('down', `Later: ${said.slice(0, 60)}`, () => move(place + 1), { disabled: place === own.length - 1, 'data-job': `${job.id} down` }),
  ];
  const about = [job.state === 'painting' ? 'Is painted' : 'Waits', job.pictures > 1 ? `${job.pictures} pictures` : '', job.model ?? '', job.mine ? '' : 'of somebody else'];
  return make('li', { 'data-id': job.id },
    make('div', {}, make('p', {}, said), make('small', {}, about.filter(Boolean).join(' · ')),
      job.state === 'painting' ? make('progress', { max: 1, 'aria-label': 'Progress' }) : null),
    make('div.toolbar', {}, ...moves, cancel));
}

export function startQueue() {
  find('free').addEventListener('click', () => attempt(async () => {
    await post('/sdapi/v1/unload-checkpoint');
    note('The model will be loaded again when it is needed.');
  }));
  return {
    job: () => draw(),
    progress: (event) => {
      const bar = document.querySelector(`#jobs [data-id="${CSS.escape(event.job)}"] progress`);
      if (bar) bar.value = event.share;
    },
  };
}
