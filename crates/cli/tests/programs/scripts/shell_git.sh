# A repository: commits with a hook, a branch, a merge, a clone, a fetch, a push and a failure.
set -eu
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@test GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@test
export GIT_AUTHOR_DATE='2020-01-01T00:00:00 +0000' GIT_COMMITTER_DATE='2020-01-01T00:00:00 +0000'
export GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git -c init.defaultBranch=main init first
cd first
printf '#!/bin/sh\ngrep -c bypath_preload /proc/self/maps >"$LOADED" || true\n' >.git/hooks/post-commit
chmod +x .git/hooks/post-commit
seq 1 20000 >numbers
git add numbers
git commit --message one
git checkout -b other
seq 1 2 20000 >odd
git add odd
git commit --message two
git checkout main
echo 20001 >>numbers
git commit --all --message three
git merge --no-edit other
cd ..
git clone --no-local --no-progress first second
cd second
git config receive.denyCurrentBranch ignore
echo 20002 >>numbers
git commit --all --message four
git push --no-progress origin HEAD:refs/heads/pushed
git log --format='%H %s'
git gc --quiet
git fsck --full --no-progress
cd ../first
git log --format='%H %s' pushed
git diff --stat main pushed
git archive pushed | tar -t
set +e
git checkout nowhere
echo "git: $?"
