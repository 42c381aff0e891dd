// ControlNets and adapters: each with its picture, what is made of that, and how strongly it counts.

import { dataUri } from './api.js';
import { button, fault, make } from './dom.js';
import { changed, state } from './state.js';

const MODES = ['Balanced', 'My prompt is more important', 'ControlNet is more important'];
const NUMBERS = [['weight', 'Weight', 0, 2, 1], ['guidance_start', 'From', 0, 1, 0], ['guidance_end', 'Until', 0, 1, 1]];
let units = 0;

export function controlsField(each) {
  const list = make('div.controls');
  const draw = () => list.replaceChildren(...state.controls.map((unit) => control(unit, each, draw)));
  const add = button('Add a ControlNet', () => {
    state.controls.push({ model: each.choices[0], module: 'none' });
    draw();
    changed('chosen', each.name);
  });
  draw();
  return make('div.field', { 'data-name': each.name }, list, add);
}

function control(unit, each, draw) {
  const place = ++units;
  const set = (name, value) => {
    if (value === null) delete unit[name];
    else unit[name] = value;
    changed('chosen', 'controls');
  };
  const select = (name, label, names, usual) => {
    const id = `control-${place}-${name}`;
    const made = make('select', { id, onchange: () => set(name, made.value) }, ...names.map((value) => make('option', { value }, value)));
    made.value = unit[name] ?? usual;
    return make('div.field', {}, make('div.label', {}, make('label', { htmlFor: id }, label)), made);
  };
  const number = ([name, label, min, max, usual]) => {
    const id = `control-${place}-${name}`;
    const made = make('input', { id, type: 'number', min, max, step: 0.05, value: unit[name] ?? usual, onchange: () => set(name, Number(made.value)) });
    return make('div.label', {}, make('label', { htmlFor: id }, label), made);
  };
  const shown = make('img', { alt: 'The picture that is followed', src: unit.image ?? '', hidden: !unit.image });
  const file = make('input', { id: `control-${place}-image`, type: 'file', accept: 'image/*', onchange: async () => {
    try {
      set('image', file.files[0] ? await dataUri(file.files[0]) : null);
    } catch (problem) {
      fault(problem.message);
    }
    Object.assign(shown, { src: unit.image ?? '', hidden: !unit.image });
  } });
  return make('fieldset.control', {}, make('legend.unseen', {}, 'A ControlNet'),
    select('model', 'Model', each.choices),
    make('div.field', {}, make('div.label', {}, make('label', { htmlFor: file.id }, 'Picture')), shown, file,
      make('p.hint', {}, 'Without one, the picture that painting begins with is followed.')),
    select('module', 'Of the picture it makes', state.described.preprocessors, 'none'),
    ...NUMBERS.map(number), select('control_mode', 'Which counts more', MODES, MODES[0]),
    button('Without this one', () => { state.controls.splice(state.controls.indexOf(unit), 1); draw(); changed('chosen', 'controls'); }));
}
