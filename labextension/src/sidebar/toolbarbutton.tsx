/** The button in a notebook's toolbar that names its cluster and opens the picker. */
import type { NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget, ToolbarButtonComponent, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';
import { distributedIcon } from '../icons';
import type { IDistributed } from '../tokens';

export class ClusterButton extends ReactWidget {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _dist: IDistributed,
    private readonly _choose: () => void
  ) {
    super();
    this.addClass('jpd-toolbar-item');
  }

  protected render(): React.ReactElement {
    const { notebooks, trans } = this._dist;
    return (
      <UseSignal signal={notebooks.changed}>
        {() => {
          const { name, pending } = notebooks.of(this._panel);
          return (
            <ToolbarButtonComponent
              icon={distributedIcon}
              label={name ?? ''}
              tooltip={
                pending
                  ? trans.__(
                      '%1 is used as soon as the kernel is idle',
                      name ?? trans.__('The default')
                    )
                  : name === null
                    ? trans.__('Select the cluster that %%%%distribute uses here')
                    : trans.__('%%%%distribute uses %1 here. Select another one', name)
              }
              className={pending ? 'jpd-toolbar-pending' : ''}
              onClick={this._choose}
            />
          );
        }}
      </UseSignal>
    );
  }
}
