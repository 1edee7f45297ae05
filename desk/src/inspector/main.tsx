// The page of the inspector.
import { render } from 'preact';
import { key, takeKey } from '../api/client';
import { share, Splitter } from '../parts/splitter';
import { takeTheme } from '../parts/theme';
import { Toasts } from '../parts/toast';
import { DetailsPane } from './details';
import { Dialogs } from './dialogs';
import { FilterBar } from './filter';
import { onKey } from './keys';
import { List } from './list';
import { Banner, KeyMissing, NoMatch, Nothing } from './states';
import { connect, filter, isDetailShown, isLoaded, shown, total } from './store';
import { Top } from './top';

function Main() {
  if (!total.value && isLoaded.value) return <Nothing />;
  if (filter.value.trim() && !shown.value.length) return <NoMatch />;
  return (
    <>
      <List />
      <Splitter label="Width of the list" />
      <DetailsPane />
    </>
  );
}

function App() {
  if (!key.value) return <KeyMissing />;
  return (
    <>
      <Top />
      <FilterBar />
      <Banner />
      <main class={isDetailShown.value ? 'split detail-shown' : 'split'} style={{ '--share': `${share.value}%` }}>
        <Main />
      </main>
      <Dialogs />
      <Toasts />
    </>
  );
}

takeTheme();
takeKey();
addEventListener('hashchange', takeKey);
addEventListener('keydown', onKey);
connect();
render(<App />, document.getElementById('app')!);
