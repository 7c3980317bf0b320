/** Lab's own renderers, for what ranks show: as for the output of a notebook that is not trusted. */
import { MimeModel, type IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Widget } from '@lumino/widgets';
import type { IBundleHost } from './run/bundles';

/** Safe, and of no use: their data is elsewhere, or it is ourselves. */
const PASSED_OVER = /widget-view|jupyter-dist|javascript|stderr|stdout|error/;

/** What Altair writes today is newer than the types that Lab's renderer of Vega names, and drawn by it. */
const NEWER = /^application\/vnd\.(vega|vegalite)\.v[6-9][+.]json$/;

export function labBundles(registry: IRenderMimeRegistry): IBundleHost {
  const known = (mime: string) =>
    registry.getFactory(mime) ? mime : mime.replace(NEWER, 'application/vnd.$1.v5+json');
  return {
    shows: mime => registry.getFactory(known(mime))?.safe === true && !PASSED_OVER.test(mime),
    render: async (place, type, data, metadata) => {
      const mime = known(type);
      const renderer = registry.createRenderer(mime);
      renderer.addClass('jpd-rendered');
      // Some draw only what is in the document, as for a formula's size.
      Widget.attach(renderer, place);
      await renderer.renderModel(
        new MimeModel({
          trusted: false,
          data: { [mime]: data } as ReadonlyPartialJSONObject,
          metadata: { [mime]: metadata ?? {} } as ReadonlyPartialJSONObject
        })
      );
      const dispose = () => {
        if (!renderer.node.isConnected) {
          // The view was taken out of the page with all that is in it.
          renderer.clearFlag(Widget.Flag.IsAttached);
        }
        renderer.dispose();
      };
      return { dispose };
    }
  };
}
