/** The plugins of the JupyterLab extension. */
import { renderer } from './mime';
import { commands } from './plugins/commands';
import { models } from './plugins/models';
import { opener } from './plugins/opener';
import { running } from './plugins/running';
import { sidebar } from './plugins/sidebar';
import { toolbar } from './plugins/toolbar';

export default [renderer, models, opener, sidebar, commands, running, toolbar];
