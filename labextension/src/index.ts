/** The plugins of the JupyterLab extension. */
import { renderer } from './mime';

export default [renderer];
