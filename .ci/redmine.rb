# Prepares a fresh Redmine for tests: default data, the REST API, developers who may edit their own notes, and an
# administrator who may begin at once. Prints the administrator's key.
Redmine::DefaultData::Loader.load('en') if IssueStatus.count.zero?
Setting.rest_api_enabled = '1'
Role.find_by!(name: 'Developer').add_permission!(:edit_own_issue_notes)
admin = User.where(admin: true).first
admin.update_columns(must_change_passwd: false, language: 'en')
puts "key=#{admin.api_key}"
