/** The extension's icons; they take JupyterLab's colours. */
import { LabIcon } from '@jupyterlab/ui-components';
import distributedSvg from '../style/icons/cluster.svg';
import compareSvg from '../style/icons/compare.svg';

export const distributedIcon = new LabIcon({
  name: 'jupyter-dist:distributed',
  svgstr: distributedSvg
});

export const compareIcon = new LabIcon({ name: 'jupyter-dist:compare', svgstr: compareSvg });
