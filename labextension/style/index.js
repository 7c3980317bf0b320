import 'uplot/dist/uPlot.min.css';
import './run.css';
import './sidebar.css';
import './apart.css';
