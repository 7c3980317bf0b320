/** The extension's icons; they take JupyterLab's colours. */
import { LabIcon } from '@jupyterlab/ui-components';
import distributedSvg from '../style/icons/cluster.svg';
import compareSvg from '../style/icons/compare.svg';
import tableSvg from '../style/icons/table.svg';

export const distributedIcon = new LabIcon({
  name: 'jupyter-dist:distributed',
  svgstr: distributedSvg
});

export const compareIcon = new LabIcon({ name: 'jupyter-dist:compare', svgstr: compareSvg });

export const tableIcon = new LabIcon({ name: 'jupyter-dist:table', svgstr: tableSvg });
