// What JupyterLab's builder is to do besides its own.
module.exports = {
  module: { rules: [{ test: /uPlot\.esm\.js$/, use: require.resolve('./uplot.js') }] }
};
