// A mask painted over a picture, and its edges dragged outwards. Strokes are kept, so that each can be taken back.

import { button, make, signButton, speak } from './dom.js';
import { changed, state } from './state.js';
import { fitSize } from './use.js';

const SIDES = { left: 'Extend to the left', top: 'Extend upwards', right: 'Extend to the right', bottom: 'Extend downwards' };
const MOST = 1024;

/** Draw strokes: `{ kind: 'line', size, erase, points }`, or `{ kind: 'all' | 'none' | 'invert' }`. */
export function drawStrokes(context, strokes, colour) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  for (const stroke of strokes) {
    context.globalCompositeOperation = { none: 'destination-out', invert: 'source-out' }[stroke.kind] ?? (stroke.erase ? 'destination-out' : 'source-over');
    context.fillStyle = context.strokeStyle = colour;
    if (stroke.kind !== 'line') {
      context.fillRect(0, 0, width, height);
      continue;
    }
    Object.assign(context, { lineWidth: stroke.size, lineCap: 'round', lineJoin: 'round' });
    context.beginPath();
    const [first, ...rest] = stroke.points;
    context.moveTo(...first);
    for (const point of rest.length ? rest : [[first[0] + 0.01, first[1]]]) context.lineTo(...point); // no length, no dot
    context.stroke();
  }
  context.globalCompositeOperation = 'source-over';
}

/** White where the strokes are, on black: a data URI, or null if there is nothing. */
export function maskOf({ width, height, strokes }) {
  const canvas = make('canvas', { width, height });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  drawStrokes(context, strokes, '#fff');
  const pixels = context.getImageData(0, 0, width, height).data;
  let some = false;
  for (let place = 3; place < pixels.length && !some; place += 4) some = pixels[place] > 0;
  if (!some) return null;
  context.globalCompositeOperation = 'destination-over';
  context.fillStyle = '#000';
  context.fillRect(0, 0, width, height);
  return canvas.toDataURL('image/png');
}

/** The editor of the picture to begin with: its element, its tools, and what fits it into the stage. */
export function editor(start) {
  const unit = Math.max(state.described.unit, 8);
  const brush = { size: Math.max(Math.round(Math.min(start.width, start.height) / 8), 4), erase: false, at: [start.width / 2, start.height / 2] };
  const picture = make('img', { src: start.url, alt: 'The picture to begin with', draggable: false });
  const canvas = make('canvas', { width: start.width, height: start.height, tabIndex: 0, role: 'application',
    'aria-label': 'Mask. Arrow keys move the brush, Space paints, E erases, square brackets change its size, Ctrl and Z takes back' });
  const ring = make('div.ring', { 'aria-hidden': 'true' });
  const inner = make('div.inner', {}, picture, canvas, ring);
  const size = make('output.size');
  const element = make('div.editor', {}, inner, size);
  const context = canvas.getContext('2d', { willReadFrequently: true });
  let scale = 1;
  let stroke = null;

  const redraw = () => drawStrokes(context, stroke ? [...start.strokes, stroke] : start.strokes, getComputedStyle(element).getPropertyValue('--mask') || '#3454c5');
  const masked = () => {
    start.mask = maskOf(start);
    undo.disabled = !start.strokes.length;
    redo.disabled = !start.undone.length;
    redraw();
    changed('start');
  };
  const add = (done) => {
    start.strokes.push(done);
    start.undone = [];
    masked();
  };
  const back = () => { if (start.strokes.length) { start.undone.push(start.strokes.pop()); masked(); speak('Taken back'); } };
  const again = () => { if (start.undone.length) { start.strokes.push(start.undone.pop()); masked(); } };

  const place = () => {
    const { left, top, right, bottom } = start.margins;
    const [width, height] = [start.width + left + right, start.height + top + bottom];
    Object.assign(element.style, { width: `${width * scale}px`, height: `${height * scale}px` });
    Object.assign(inner.style, { left: `${left * scale}px`, top: `${top * scale}px`, width: `${start.width * scale}px`, height: `${start.height * scale}px` });
    size.textContent = `${width} × ${height}`;
    for (const handle of handles) handle.setAttribute('aria-valuenow', start.margins[handle.dataset.side]);
    showRing();
  };
  const fit = () => {
    const box = element.parentElement;
    const { left, top, right, bottom } = start.margins;
    scale = Math.min((box.clientWidth - 44) / (start.width + left + right), (box.clientHeight - 44) / (start.height + top + bottom));
    place();
    redraw();
  };
  const showRing = () => {
    const side = brush.size * scale;
    Object.assign(ring.style, { width: `${side}px`, height: `${side}px`, left: `${brush.at[0] * scale - side / 2}px`, top: `${brush.at[1] * scale - side / 2}px` });
    ring.classList.toggle('erase', brush.erase);
  };
  const resize = (next) => { brush.size = Math.min(Math.max(Math.round(next), 1), Math.max(start.width, start.height)); sizer.value = brush.size; showRing(); };
  const setErase = (erase) => { brush.erase = erase; paint.setAttribute('aria-pressed', String(!erase)); wipe.setAttribute('aria-pressed', String(erase)); showRing(); };

  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    stroke = { kind: 'line', size: brush.size, erase: brush.erase, points: [point(event)] };
    redraw();
  });
  canvas.addEventListener('pointermove', (event) => {
    brush.at = point(event);
    showRing();
    if (!stroke) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) stroke.points.push(point(each));
    redraw();
  });
  const lift = () => { const done = stroke; stroke = null; if (done) add(done); };
  canvas.addEventListener('pointerup', lift);
  canvas.addEventListener('pointercancel', () => { stroke = null; redraw(); });

  let last = null;
  canvas.addEventListener('keydown', (event) => {
    const step = event.shiftKey ? 1 : Math.max(start.width, start.height) / 32;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    const keys = {
      ' ': () => { add({ kind: 'line', size: brush.size, erase: brush.erase, points: last ? [last, [...brush.at]] : [[...brush.at]] }); last = event.shiftKey ? [...brush.at] : null; },
      '[': () => resize(brush.size / 1.2), ']': () => resize(brush.size * 1.2 + 1), e: () => setErase(true), b: () => setErase(false),
    };
    if (event.key in moves) brush.at = brush.at.map((each, axis) => Math.min(Math.max(each + moves[event.key][axis], 0), axis ? start.height : start.width));
    else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'z') (event.shiftKey ? again : back)();
    else if (event.key in keys && !event.ctrlKey && !event.metaKey) keys[event.key]();
    else return;
    event.preventDefault();
    showRing();
  });

  const extend = (side, pixels) => {
    start.margins[side] = Math.min(Math.max(Math.round(pixels / unit) * unit, 0), MOST);
    state.chosen.denoising_strength ??= 1; // what is added is nothing that could stay
    fitSize();
    place();
    changed('start');
  };
  const handles = Object.entries(SIDES).map(([side, label]) => {
    const handle = make('button.handle', { type: 'button', 'data-side': side, role: 'slider', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': MOST, 'aria-valuenow': 0, title: label });
    const across = side === 'left' || side === 'right';
    const sense = side === 'left' || side === 'top' ? -1 : 1;
    let from = null;
    handle.addEventListener('pointerdown', (event) => {
      handle.setPointerCapture(event.pointerId);
      from = { at: across ? event.clientX : event.clientY, margin: start.margins[side] };
    });
    handle.addEventListener('pointermove', (event) => {
      if (from) extend(side, from.margin + (sense * ((across ? event.clientX : event.clientY) - from.at)) / scale);
    });
    for (const end of ['pointerup', 'pointercancel']) handle.addEventListener(end, () => { from = null; fit(); });
    handle.addEventListener('keydown', (event) => {
      const outwards = { left: 'ArrowLeft', top: 'ArrowUp', right: 'ArrowRight', bottom: 'ArrowDown' }[side];
      const inwards = { left: 'ArrowRight', top: 'ArrowDown', right: 'ArrowLeft', bottom: 'ArrowUp' }[side];
      if (event.key !== outwards && event.key !== inwards) return;
      event.preventDefault();
      extend(side, start.margins[side] + (event.key === outwards ? unit : -unit) * (event.shiftKey ? 8 : 1));
      fit();
    });
    return handle;
  });
  element.append(...handles);

  const paint = button('Brush', () => setErase(false), 'quiet', { 'aria-pressed': 'true' });
  const wipe = button('Eraser', () => setErase(true), 'quiet', { 'aria-pressed': 'false' });
  const sizer = make('input', { type: 'range', min: 1, max: Math.max(Math.round(Math.max(start.width, start.height) / 2), 2), value: brush.size, oninput: () => resize(Number(sizer.value)) });
  const undo = signButton('undo', 'Take back', back);
  const redo = signButton('redo', 'Do again', again);
  const tools = [paint, wipe, make('label.sizer', {}, make('span', {}, 'Size'), sizer), undo, redo,
    button('All', () => add({ kind: 'all' })), button('Invert', () => add({ kind: 'invert' })), button('Clear', () => add({ kind: 'none' }))];
  undo.disabled = !start.strokes.length;
  redo.disabled = !start.undone.length;
  new ResizeObserver(() => { if (element.isConnected) fit(); }).observe(document.getElementById('canvas'));
  return { element, tools, fit };
}
