/** Say in one sentence why the server gave no answer. */
import { ServerConnection } from '@jupyterlab/services';
import { ApiError } from '../api';
import type { TranslationBundle } from '@jupyterlab/translation';

export function explain(error: unknown, trans: TranslationBundle): string {
  if (error instanceof ServerConnection.NetworkError || error instanceof TypeError) {
    return trans.__('The Jupyter server does not answer.');
  }
  if (error instanceof ApiError) {
    // A 404 of our own says what is missing; one of the server says that we are.
    if (error.status === 404 && !error.data.message) {
      return trans.__(
        'The Jupyter server lacks jupyter-dist. Install it in the server’s environment and restart the server.'
      );
    }
    if (error.status === 401 || error.status === 403) {
      return trans.__('The Jupyter server refuses this page. Reload the page, or log in again.');
    }
    return error.message;
  }
  return error instanceof Error ? error.message : String(error);
}
