/** The run view as an anywidget, fed by the kernel, where the labextension is missing. */
export { RunView } from './run/view';
