# A package with a dependency beside it: installed with its scripts, and used. Nothing is fetched.
set -eu
mkdir dependency app
cat >dependency/package.json <<'END'
{ "name": "tiny", "version": "1.0.0", "main": "index.js", "bin": { "tiny": "bin.js" } }
END
echo 'exports.say = () => console.log("tiny says", 6 * 7);' >dependency/index.js
printf '#!/usr/bin/env node\nrequire("./index.js").say();\n' >dependency/bin.js
cat >app/package.json <<'END'
{
  "name": "app", "version": "1.0.0", "private": true,
  "dependencies": { "tiny": "file:../dependency" },
  "scripts": {
    "say": "tiny",
    "postinstall": "grep -c bypath_preload /proc/self/maps >\"$LOADED\"; node -e 'console.log(\"installed\")'",
    "fails": "exit 3"
  }
}
END
cd app
npm install --offline --no-audit --no-fund --no-update-notifier --foreground-scripts --loglevel=error >installed
grep -v '^added .* package' installed
npm run --silent say
npm ls
set +e
npm run --silent fails
echo "npm: $?"
